from booking_core.wire.webhooks import AttemptError


def test_smoke(hooks):
    e = hooks.endpoint()
    (event,) = hooks.tell()
    c = hooks.one()
    print(c)
    assert c.secrets == (hooks.secrets[e],)
    assert hooks.claim() == []
    hooks.succeed(c)
    print(hooks.delivery(), hooks.attempts(), hooks.row(e))
    hooks.tell()
    hooks.fail_until_dead()
    print(hooks.deliveries()[-1], hooks.event_types())
