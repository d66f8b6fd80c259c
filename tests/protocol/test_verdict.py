import itertools

import pytest

from afpool._base.errors import (
    AuthorizationRequired,
    ElicitationRequired,
    ProtocolError,
    ServerError,
    ServerFailed,
    ServerRefused,
    SessionExpiredError,
)
from afpool.protocol import (
    BodyKind,
    Era,
    Followup,
    MalformedMessage,
    Outcome,
    classify_http,
    classify_posted,
    classify_result,
    classify_stream,
    decode_message,
    read_call_result,
    says_session_lost,
    unreadable_result,
)

RESULT = decode_message(b'{"id":1,"result":{}}')
LOST = "No valid session ID provided"
REFUSING_STATUS = {405, 406, 413, 415, 421, 429}
REFUSING_CODE = {
    -32700: Followup.NONE,
    -32600: Followup.NONE,
    -32601: Followup.NONE,
    -32020: Followup.RELIST,
    -32022: Followup.RENEGOTIATE,
}
CODES = [
    None,
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
    -32000,
    -32001,
    -32002,
    -32020,
    -32021,
    -32022,
    -32042,
    1,
]
STATUSES = [
    200,
    202,
    204,
    301,
    302,
    307,
    308,
    400,
    401,
    403,
    404,
    405,
    406,
    408,
    409,
    413,
    415,
    421,
    422,
    429,
]
STATUSES += [500, 501, 502, 503, 504]


def error(code, text="no"):
    member = "" if code is None else f'"code":{code},'
    return decode_message(
        f'{{"id":null,"error":{{{member}"message":"{text}","data":{{"s3cret":1}}}}}}'.encode()
    )


def session_words_count(code):
    return code not in {-32700, -32601, -32602, -32603, -32002, -32020, -32021, -32022, -32042}


def expected(status, kind, answer, text, had_session, era, challenge, same_origin):
    """The law once more, as a list of sentences instead of tables."""
    is_error = isinstance(answer, tuple)
    code = answer[0] if is_error else None
    if had_session and era is Era.HANDSHAKE and answer != "result":
        names_session = text == LOST
        about_session = not is_error or session_words_count(code)
        if about_session and (status == 404 or (status == 400 and names_session)):
            return SessionExpiredError, "refused", Followup.NONE
    door = status == 400 and era is Era.STATELESS and text == LOST and answer != "result"
    if door and (not is_error or session_words_count(code)):
        return ServerRefused, "refused", Followup.RENEGOTIATE
    if status == 401:
        return AuthorizationRequired, "refused", Followup.NEW_CREDENTIAL
    if status == 403 and challenge:
        return AuthorizationRequired, "refused", Followup.STEP_UP
    if status in REFUSING_STATUS:
        return ServerRefused, "refused", Followup.WAIT_AND_RETRY if status == 429 else Followup.NONE
    if status in (307, 308) and same_origin:
        return ServerRefused, "refused", Followup.REDIRECT
    if is_error:
        if code in REFUSING_CODE:
            return ServerRefused, "refused", REFUSING_CODE[code]
        return (ElicitationRequired if code == -32042 else ServerError), "answered", Followup.NONE
    if answer == "result":
        return None, "answered", Followup.NONE
    if 200 <= status < 300 and kind is BodyKind.JSON:
        return ProtocolError, "answered", Followup.NONE
    return ServerFailed, "in-doubt", Followup.NONE


ANSWERS = [None, "result", *((code,) for code in CODES)]


@pytest.mark.parametrize("status", STATUSES)
def test_every_http_answer(status):
    flags = [False, True]
    for kind, answer, text, had_session, era, challenge, same_origin in itertools.product(
        BodyKind, ANSWERS, ["no", LOST], flags, Era, flags, flags
    ):
        message = RESULT if answer == "result" else error(answer[0], text) if answer else None
        outcome = classify_http(
            status,
            kind,
            message,
            had_session=had_session,
            era=era,
            text_hint=text.encode(),
            challenge=challenge,
            same_origin=same_origin,
        )
        case = (status, kind, answer, text, had_session, era, challenge, same_origin)
        assert outcome[:3] == expected(*case), case
        assert outcome.http_status == status
        assert "s3cret" not in outcome.reason
        assert LOST not in outcome.reason
        if outcome.error is not None:
            raised = outcome.to_error()
            assert type(raised) is outcome.error
            assert raised.delivery == outcome.delivery
            assert raised.http_status == status


@pytest.mark.parametrize("code", CODES)
def test_every_error_on_a_stream(code):
    outcome = classify_stream(error(code, LOST))
    if code in REFUSING_CODE:
        assert outcome[:3] == (ServerRefused, "refused", REFUSING_CODE[code])
    else:
        kind = ElicitationRequired if code == -32042 else ServerError
        assert outcome[:3] == (kind, "answered", Followup.NONE)
    assert outcome.http_status is None
    assert LOST not in outcome.reason


def test_a_result_on_a_stream_and_what_is_no_answer():
    assert classify_stream(RESULT)[:3] == (None, "answered", Followup.NONE)
    with pytest.raises(ValueError, match="response"):
        classify_stream(decode_message(b'{"id":1,"method":"ping"}'))


def test_a_request_of_the_server_is_no_answer_over_http():
    message = decode_message(b'{"id":1,"method":"ping"}')
    outcome = classify_http(200, BodyKind.SSE, message, had_session=False, era=Era.HANDSHAKE)
    assert outcome[:2] == (ServerFailed, "in-doubt")


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("Session not found", True),
        ("Not Found: Invalid or expired session ID", True),
        ("Not Found: Session has been terminated", True),
        ("Bad Request: No valid session ID provided", True),
        ("Bad Request: Missing session ID", True),
        ("Bad Request: Server not initialized", True),
        ("Bad Request: Mcp-Session-Id header is required", True),
        ("unknown SESSION", True),
        ("Session doesn't exist", True),
        ("Session with given ID not found", True),
        ("The session is running", False),
        ("Missing argument", False),
        ("Invalid request", False),
        ("", False),
        ("x" * 3000 + "session not found", False),
    ],
)
def test_spellings_of_a_lost_session(text, lost):
    assert says_session_lost(text) is lost
    outcome = classify_http(
        400, BodyKind.OTHER, None, had_session=True, era=Era.HANDSHAKE, text_hint=text.encode() + b"\xff"
    )
    assert (outcome.error is SessionExpiredError) is lost


def test_the_exception_carries_what_the_answer_said():
    message = decode_message(
        b'{"id":1,"error":{"code":-32001,"message":"peer words","data":{"n":36893488147419103232}}}'
    )
    raised = classify_http(200, BodyKind.JSON, message, had_session=True, era=Era.HANDSHAKE).to_error()
    assert isinstance(raised, ServerError)
    assert (raised.error_code, raised.data) == (-32001, {"n": 2**65})
    assert "peer words" not in str(raised)
    raised = classify_http(429, BodyKind.OTHER, None, had_session=False, era=Era.STATELESS).to_error(
        retry_after=2.5
    )
    assert raised.retry_after == 2.5
    raised = classify_http(401, BodyKind.OTHER, None, had_session=False, era=Era.STATELESS).to_error(
        www_authenticate="Bearer"
    )
    assert raised.www_authenticate == "Bearer"


@pytest.mark.parametrize("data", ["NaN", '"\\ud800"'])
def test_error_data_that_is_odd_does_not_hide_the_error(data):
    message = decode_message(f'{{"id":1,"error":{{"code":5,"data":{data}}}}}'.encode())
    raised = classify_stream(message).to_error()
    assert raised.error_code == 5
    assert raised.data == (None if data == "NaN" else "\ud800")


def test_a_huge_error_code_does_not_make_a_huge_message():
    message = decode_message(b'{"id":1,"error":{"code":%d}}' % 10**4000)
    assert len(str(classify_stream(message).to_error())) < 200


def test_a_result_that_asks_for_input_is_followed_up():
    outcome = classify_stream(RESULT)
    asks = read_call_result(b'{"resultType":"input_required"}')
    assert classify_result(asks, outcome).followup is Followup.INPUT_REQUIRED
    assert classify_result(read_call_result(b"{}"), outcome) is outcome


def test_an_unreadable_result():
    outcome = unreadable_result(MalformedMessage("JSON is malformed"), 200)
    assert outcome == Outcome(
        ProtocolError, "answered", Followup.NONE, "the answer could not be read: JSON is malformed", 200
    )


MISSING_SESSION = [
    b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Missing session ID"}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}',
    b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}',
]


@pytest.mark.parametrize("body", MISSING_SESSION)
def test_the_door_of_the_handshake_era_refuses_and_is_to_be_negotiated_with(body):
    message = decode_message(body)
    outcome = classify_http(400, BodyKind.JSON, message, had_session=False, era=Era.STATELESS)
    assert (outcome.delivery, outcome.followup) == ("refused", Followup.RENEGOTIATE)
    assert outcome.error is ServerRefused


def test_a_400_under_the_requests_own_id_is_the_answer_of_whoever_ran_it():
    body = b'{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"the session was not found"}}'
    outcome = classify_http(400, BodyKind.JSON, decode_message(body), had_session=False, era=Era.STATELESS)
    assert (outcome.delivery, outcome.followup) == ("answered", Followup.NONE)


@pytest.mark.parametrize("status", [200, 404, 500])
def test_only_a_400_is_a_door(status):
    outcome = classify_http(
        status, BodyKind.JSON, decode_message(MISSING_SESSION[1]), had_session=False, era=Era.STATELESS
    )
    assert outcome.followup is Followup.NONE


def test_the_door_of_the_stateless_era_misses_the_version():
    text = "Invalid params: missing _meta member io.modelcontextprotocol/protocolVersion"
    body = b'{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"%b"}}' % text.encode()
    for era, followup in ((Era.HANDSHAKE, Followup.RENEGOTIATE), (Era.STATELESS, Followup.NONE)):
        outcome = classify_http(400, BodyKind.JSON, decode_message(body), had_session=True, era=era)
        assert outcome.followup is followup


@pytest.mark.parametrize("status", [400, 403, 404, 410, 422, 499, 500, 503])
@pytest.mark.parametrize("body", [None, MISSING_SESSION[1]])
def test_a_post_that_only_hands_over_is_refused_by_every_4xx(status, body):
    message = None if body is None else decode_message(body)
    outcome = classify_http(status, BodyKind.JSON, message, had_session=False, era=Era.HANDSHAKE)
    posted = classify_posted(outcome)
    assert posted.delivery == ("refused" if status < 500 else outcome.delivery)
    if status < 500:
        assert posted.error is ServerRefused
