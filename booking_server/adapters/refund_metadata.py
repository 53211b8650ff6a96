"""The names of the metadata by which refunds of this service are known at Stripe."""

REFUND_ID = "refund_id"
REOPENED = "reopened"
