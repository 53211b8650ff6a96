"""What a guest does in the shop: seats held, a booking checked out, paid for, or abandoned."""
