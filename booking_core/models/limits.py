"""Every number of the contract (API v1 section 8), and the few that its decisions add."""

API_VERSION = "2026-09-09"
"""Version date of the resource shapes, in every event and in the served description."""

API_KEY_PREFIX = "svc_"
TEST_API_KEY_PREFIX = "svc_test_"
"""Of the keys of sandboxes; a live key has no second underscore."""
API_KEY_LENGTH = 44
API_KEY_DISPLAY_LENGTH = 12
TEST_API_KEY_DISPLAY_LENGTH = 17
ACTIVE_API_KEYS_PER_ORGANIZATION = 20

PAGE_LIMIT_DEFAULT = 25
PAGE_LIMIT_MAX = 100
WINDOW_DAYS_MAX = 92
AVAILABILITY_DAYS_DEFAULT = 30
EVENT_TYPES_PER_FILTER = 20

IDEMPOTENCY_KEY_LENGTH_MIN = 8
IDEMPOTENCY_KEY_LENGTH_MAX = 200
REQUEST_ID_LENGTH_MAX = 128
REQUEST_BODY_BYTES_MAX = 256 * 1024
REQUEST_HEAD_BYTES_MAX = 64 * 1024
"""The request line and all fields."""
REQUEST_FIELDS_MAX = 100
QUERY_VALUE_LENGTH_MAX = 2048

TEXT_LENGTH_MAX = 200
NOTE_LENGTH_MAX = 2000
CANCELLATION_REASON_LENGTH_MAX = 200
LANGUAGE_TAG_LENGTH_MAX = 35
LINES_MAX = 100
EXTERNAL_REFERENCE_LENGTH_MAX = 200
METADATA_KEYS_MAX = 50
METADATA_KEY_LENGTH_MAX = 40
METADATA_VALUE_LENGTH_MAX = 500
METADATA_LENGTH_MAX = 8_000
"""Characters of all keys and values together. They are stored and sent with each event of the booking."""
MANIFEST_BOOKINGS_MAX = 1_000
"""More bookings of one departure are read as a list."""
COUNT_MAX = 2_147_483_647
AMOUNT_MINOR_MAX = 9_223_372_036_854_775_807
"""Money is a signed 64-bit integer of minor units in both databases."""

HOLD_S_MIN = 1
HOLD_S_DEFAULT = 600
HOLD_S_MAX = 1_800
LIVE_HOLDS_PER_ORGANIZATION = 200
"""Holds of the API. A key must not keep the whole catalogue from being sold."""

WEBHOOK_ENDPOINTS_PER_ORGANIZATION = 10
WEBHOOK_HEADERS_MAX = 10
WEBHOOK_PER_SECOND_MAX = 1000
"""The highest limit that an endpoint may have; beyond it, the slots of workers are the limit."""
WEBHOOK_URL_LENGTH_MAX = 2048
WEBHOOK_ATTEMPTS = 6
WEBHOOK_WAITS_S = (60, 300, 1800, 7200, 28800)
WEBHOOK_DEADLINE_S = 10
WEBHOOK_DISABLE_AFTER_S = 72 * 3600
WEBHOOK_EXCERPT_LENGTH_MAX = 1024
SECRET_OVERLAP_S_DEFAULT = 86_400
SECRET_OVERLAP_S_MAX = 604_800
SIGNATURE_TOLERANCE_S = 300

EVENT_RETENTION_DAYS = 90
DELIVERY_RETENTION_DAYS = 30
IDEMPOTENCY_RETENTION_DAYS = 30

SANDBOX_CLOCK_AHEAD_S_MAX = 731 * 86_400
"""Two years, by all advances together."""
SANDBOX_DUE_MAX = 100
"""The largest number of due rows of a kind that is counted."""
