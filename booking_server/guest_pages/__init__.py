"""The pages of a guest's secret link: they show a booking and cancel it, in plain HTML without scripts.

They are not a part of the API: the link is enough, and no key is needed. A GET changes nothing. A cancellation is a
POST from a page that shows its consequences and the refund.
"""

GUEST_PAGES = ("/manage/", "/gift-card/")
"""The beginnings of their paths."""
