"""Webhooks: endpoints, the log of deliveries, and the workers' queue.

`endpoints`, `deliveries` and `recovering` hold the operations of the API; `claiming`, `recording` and `upkeep` are the
worker's; `following` is how an endpoint follows the log of events (decisions/0030). The HTTP
request itself is sent by the server's webhook client.
"""

from booking_core.webhooks.claiming import ClaimedDelivery, claim, lease_s
from booking_core.webhooks.deliveries import NOT_DEAD, redeliver, retry, send_test
from booking_core.webhooks.deliveries import count as count_deliveries
from booking_core.webhooks.deliveries import find as find_deliveries
from booking_core.webhooks.deliveries import get as get_delivery
from booking_core.webhooks.endpoints import change, check, create, delete, find_all, get, rotate_secret
from booking_core.webhooks.queue import expired_leases, park
from booking_core.webhooks.recording import DeliveryResult, record, rescue_expired_leases
from booking_core.webhooks.recovering import recover
from booking_core.webhooks.rules import HEADERS_PURPOSE, SECRET_PURPOSE, is_port_allowed
from booking_core.webhooks.upkeep import Step, purge, purge_endpoints
from booking_core.webhooks.upkeep import steps as upkeep_steps
