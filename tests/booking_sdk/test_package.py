"""The package as a whole: its public names, its import cost and its dependencies."""

import ast
import collections.abc
import importlib
import importlib.metadata
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import booking_sdk
import booking_sdk.testing
import webhook_verify

FOLDER = Path(booking_sdk.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))

SURFACE = """
APIConnectionError APIError APIResponse APIStatusError APITimeoutError API_VERSION AddOn AddOnInput AddOnLine
AddOnParam AnyEvent ApiKey ApiKeyExpiredError ApiKeyInvalidError ApiKeyMissingError ApiKeyRevokedError
AppNotEnabledError AsyncBookingClient AsyncEventPage AsyncFeed AsyncHttpClientLike AsyncPage AsyncPaginator Attempt
AttemptError AttemptTrigger AuthenticationError BadRequestError BookedDeparture BookedExperience Booking
BookingCancelled BookingChange BookingClient BookingConfirmed BookingCreated BookingData BookingError BookingEvent
BookingRescheduled BookingSource BookingStatus CancelReason CancellationData CancellationTerms
Checkout CheckoutPayment ChangeMoney ChangeSettlement ClientOptions
ConfigurationError ConflictError Customer CustomerCreated CustomerData CustomerEvent CustomerUpdated Delivery
DeliveryAttempt DeliveryDeadData DeliveryStatus DeliveryTrigger Departure DepartureStatus DisabledReason
DuplicateEvent EndpointData EndpointStatus ErrorCode ErrorDetail Event EventPage EventType EventsLost Experience
FailureReason Feed GiftCard GiftCardContact GiftCardData GiftCardEvent GiftCardIssued GiftCardRedeemed GiftCardStatus
Guest GuestInput GuestLine GuestLineInput GuestLineParam GuestParam Headers Hooks HttpClientLike
IdempotencyInProgressError IdempotencyKeyRequiredError IdempotencyKeyReusedError InsufficientCapacityError
InsufficientScopeError Interruption Me Money NotFoundError Organization Page PaginationError Paginator PayloadError
Payment PaymentMethod PaymentMode PaymentSource PaymentStatus PermissionDeniedError Ping PingData PingObject
PlanUpgradeRequiredError PreviousDeparture PriceTier RateLimit RateLimitError Recovered RedemptionData RefundMode
RequestOptions RescheduleData ResourceType Response ResponseMeta ResponseTooLargeError
ResponseValidationError RetryDecision
Scope Sending ServerError Timeout Totals UNSET UnknownEvent UnprocessableEntityError Unset WebhookAutoDisabled
WebhookDeliveryDead WebhookEnabled WebhookEndpoint WebhookEndpointWithSecret WebhookEvent WebhookSecretRotated
WebhookVerificationError __version__ idempotency_key interruption meta parse_event_unverified unwrap
GiftCardTransaction GiftCardTransactionType
BookingUpdateData BookingUpdated BookingRefundData BookingRefunded CustomerUpdateData EndpointFailingData
DepartureData DepartureEvent DepartureUpdated GiftCardRestored RestorationData WebhookFailing
BookingCounts Manifest ManifestDeparture ManifestEntry ManifestTotals
BookingQuote BookingRefusal Hold HoldStatus
ExperienceTexts
AnyBookingEvent AnyCustomerEvent AnyGiftCardEvent BookingEventType BookingStatusParam CustomerEventType
DeliveryStatusParam DepartureEventType EndpointStatusParam FollowEvents GiftCardEventType GiftCardStatusParam
IterateBookings IterateCustomers IterateDeliveries IterateEvents IterateExperiences IterateGiftCards IterateItems
ListBookings ListCustomers ListDeliveries ListEvents ListExperiences ListGiftCards ListItems
PaymentParam RecoverableStatusParam RefundParam ResourceTypeParam SandboxCardParam SortOrder
SandboxCard SandboxClock SandboxDue SandboxMail SandboxPayment SandboxPaymentStatus SandboxStatus
""".split()


FOR_TESTS = """
FakeBookingAPI FakeRequest ManualClock make_booking make_customer make_departure make_event make_experience
make_gift_card on_clock
""".split()


def test_the_surface_is_this() -> None:
    assert sorted(booking_sdk.__all__) == sorted(SURFACE)
    assert sorted(booking_sdk.testing.__all__) == FOR_TESTS


def test_every_name_is_what_a_checker_takes_it_for() -> None:
    """The imports under TYPE_CHECKING are the objects of the lazy imports."""
    tree = ast.parse((FOLDER / "__init__.py").read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "importlib"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                name = alias.asname or alias.name
                assert getattr(booking_sdk, name) is getattr(module, alias.name)
                names.add(name)
    assert names == set(booking_sdk.__all__)


def annotations_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the methods of the public classes of a module, each with a name in its annotations."""
    for kind in ast.parse(path.read_text(encoding="utf-8")).body:
        for method in kind.body if isinstance(kind, ast.ClassDef) else []:
            if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) or method.name.startswith("_"):
                continue
            arguments = method.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            for annotation in [argument.annotation for argument in every if argument] + [method.returns]:
                for name in re.findall(r"[A-Z]\w+", ast.unparse(annotation) if annotation else ""):
                    yield f"{path.stem}.{method.name}", name


STANDARD = {*vars(typing), *vars(collections.abc), "UUID", "None"}
RESOURCES = sorted((FOLDER / "resources").glob("*.py"))


@pytest.mark.parametrize("path", RESOURCES, ids=lambda path: path.stem)
def test_every_type_in_a_signature_can_be_imported(path: Path) -> None:
    public = STANDARD | {*booking_sdk.__all__, *webhook_verify.__all__}
    assert [place for place in annotations_of(path) if place[1] not in public] == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Spaceship"):
        booking_sdk.Spaceship  # noqa: B018
    assert set(booking_sdk.__all__) <= set(dir(booking_sdk))


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter."""
    program = f"import sys; sys.path.insert(0, {str(FOLDER.parent)!r}); {code}"
    return subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False)


def loaded_by(code: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after running the code."""
    result = run(f"{code}; print(*sys.modules)")
    assert (result.returncode, result.stderr) == (0, "")
    return set(result.stdout.split())


THIRD = {"httpx", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
OF_HTTPX = {"httpcore", "h11", "anyio", "certifi", "idna", "sniffio", "click", "rich", "pygments"}
OF_HTTPCORE = {"trio", "outcome", "attr", "attrs", "sortedcontainers"}
"""Modules that httpcore loads if they are installed, as they are with the tools of this workspace."""


def test_importing_loads_the_client_and_neither_a_model_nor_what_makes_them() -> None:
    loaded = loaded_by("import booking_sdk")
    assert {"httpx", "booking_sdk.client", "booking_sdk._sync.client"} <= loaded
    assert not {name for name in loaded if name.startswith("pydantic")}
    modules = {name for name in loaded if name.startswith(("booking_", "webhook_verify"))}
    assert "webhook_verify" not in modules
    assert "asyncio" not in loaded
    assert {name for name in modules if name.startswith("booking_core")} == {
        "booking_core",
        "booking_core.models",
        "booking_core.models.limits",
        "booking_core.models.suggestions",
    }
    assert not {name for name in modules if "resources" in name or "testing" in name}


@pytest.mark.exhaustive
def test_everything_together_needs_httpx_pydantic_and_the_standard_library() -> None:
    names = "[getattr(booking_sdk, name) for name in booking_sdk.__all__]"
    resources = "client = booking_sdk.BookingClient('svc_x', base_url='https://a.test')"
    uses = "[getattr(client, name) for name in booking_sdk.client._RESOURCES]; client.close()"
    loaded = loaded_by(f"import booking_sdk, booking_sdk.testing; {names}; {resources}; {uses}")
    roots = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    # Loaded by the interpreter: for its site, which a distribution may customize, and for editable packages.
    roots = {name for name in roots if not name.startswith(("_", "editable", "sitecustomize"))}
    assert roots <= {"booking_sdk", "booking_core", "webhook_verify"} | THIRD | OF_HTTPX | OF_HTTPCORE
    assert not {"sqlalchemy", "fastapi", "starlette", "orjson", "cryptography", "booking_server"} & roots
    core = {name for name in loaded if name.startswith("booking_core.")}
    assert all(name.startswith("booking_core.models") for name in core)


def test_importing_reads_no_environment_and_opens_nothing() -> None:
    is_code = "str(args[0]).endswith(('.py', '.pyc')) or '__pycache__' in str(args[0])"
    is_outside = f"event.startswith(('socket.', 'os.putenv', 'subprocess')) or event == 'open' and not ({is_code})"
    loaded_by(
        "import httpx, pydantic, os; pydantic.TypeAdapter; seen = []; "
        f"sys.addaudithook(lambda event, args: seen.append((event, args)) if {is_outside} else None); "
        "environ = os.environ; os.environ = None; import booking_sdk; os.environ = environ; assert not seen, seen"
    )


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            names.add(str(node.module))
    return names


def test_httpx_is_imported_in_one_place() -> None:
    users = {path.relative_to(FOLDER).as_posix() for path in MODULES if "httpx" in imports(path)}
    assert {path for path in users if not path.startswith("testing/")} == {"_http.py"}


OF_THE_DOUBLE = {"testing/fake.py", "testing/_filling.py", "testing/_service.py"}
"""Modules that need the service, which comes with the extra `testing`."""
WITHOUT_THE_SERVICE = [path for path in MODULES if path.relative_to(FOLDER).as_posix() not in OF_THE_DOUBLE]


@pytest.mark.exhaustive
def test_the_service_is_missed_with_the_command_that_installs_it() -> None:
    result = run("sys.modules['booking_server'] = None; from booking_sdk.testing import make_booking, FakeBookingAPI")
    assert 'FakeBookingAPI needs the service, pip install "booking-sdk[testing]"' in result.stderr
    with pytest.raises(AttributeError, match="Spaceship"):
        booking_sdk.testing.Spaceship  # noqa: B018


@pytest.mark.parametrize("path", WITHOUT_THE_SERVICE, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_a_module_uses_the_wire_and_nothing_else_of_the_core(path: Path) -> None:
    for name in imports(path):
        assert not name.startswith("booking_core") or name.startswith("booking_core.models")
        assert not name.startswith(("booking_server", "booking_cli"))


def test_the_package_is_small_and_carries_types_with_guides() -> None:
    assert len([path for path in MODULES if "_sync" not in path.parts]) < 60
    for name in ("py.typed", "README.md", "docs/retries.md", "docs/pagination.md", "docs/testing.md"):
        assert (FOLDER / name).is_file()


def requirements(distribution: str) -> set[str]:
    """Return the names of the distributions that one needs without its extras."""
    lines = importlib.metadata.requires(distribution) or []
    return {re.split(r"[^\w-]", line)[0] for line in lines if "extra ==" not in line}


def test_the_guide_names_each_package_that_is_installed() -> None:
    installed = set().union(*map(requirements, ("booking-sdk", "booking-core", "webhook-verify")))
    assert installed == {"booking-core", "webhook-verify", "httpcore", "httpx", "pydantic"}
    guide = (FOLDER / "README.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^pip installs it with .*", guide, re.MULTILINE)
    assert all(name in sentence for name in installed)
