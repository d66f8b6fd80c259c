import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from afpool.protocol import (
    MalformedMessage,
    decode_error,
    decode_message,
    decode_messages,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)))


@pytest.mark.parametrize(
    ("text", "response", "request_", "notification", "error"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', True, False, False, False),
        (b'{"id":1,"result":null}', True, False, False, False),
        (b'{"result":{}}', True, False, False, False),
        (b'{"id":"server-error","error":{"code":-32600,"message":"x"}}', True, False, False, True),
        (b'{"id":null,"error":{}}', True, False, False, True),
        (b'{"id":1,"result":{},"error":null}', True, False, False, False),
        (b'{"id":1,"result":null,"error":{"code":1}}', True, False, False, True),
        (b'{"id":1,"error":null}', True, False, False, True),
        (b'{"id":1,"error":"broken"}', True, False, False, True),
        (b'{"id":0,"method":"ping"}', False, True, False, False),
        (b'{"id":"a","method":"ping","params":{}}', False, True, False, False),
        (b'{"method":"notifications/progress","params":{}}', False, False, True, False),
        (b'{"id":null,"method":"ping"}', False, False, True, False),
        (b' \n{"id":1,"extra":[1e5,{"a":[]}],"result":{}}\n', True, False, False, False),
        (b'\xef\xbb\xbf{"id":1,"result":{}}', True, False, False, False),
        (b'{"id":1,"result":{"t":"\\ud800"}}', True, False, False, False),
        (b'{"id":1,"result":{"t":NaN}}', True, False, False, False),
    ],
)
def test_kinds(text, response, request_, notification, error):
    message = decode_message(text)
    assert message.is_response is response
    assert message.is_request is request_
    assert message.is_notification is notification
    assert message.is_error is error


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"hello secret",
        b"[]",
        b"null",
        b"1",
        b"{}",
        b'{"id":1}',
        b'{"method":5}',
        b'{"id":1,"result":{}',
        b'{"id":1,"result":{}} secret',
        b'{"id":1,"result":"\xff secret"}',
        b'{"\\ud800":1,"method":5}',
        b'{"\\ud800":1 "secret":2}',
        b'{"\\ud800" 1}',
        b'{"\\ud800":1,}',
        b'{"id":1,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_malformed_messages_say_so_and_quote_nothing(text):
    with pytest.raises(MalformedMessage) as caught:
        decode_message(text)
    assert "secret" not in str(caught.value)
    with pytest.raises(MalformedMessage):
        decode_messages(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"7", 7),
        (b'"7"', 7),
        (b"7.0", 7),
        (b"7.5", None),
        (b"true", None),
        (b"null", None),
        (b'"server-error"', None),
        (b'"-7"', None),
        (b'"\xc2\xb2"', None),
        (b'"' + b"1" * 5000 + b'"', None),
        (b"{}", None),
        (b"36893488147419103232", 2**65),
    ],
)
def test_ids_are_the_same_in_every_spelling(text, expected):
    assert decode_message(b'{"id":%b,"result":{}}' % text).response_id == expected


def test_an_absent_id_is_unset():
    message = decode_message(b'{"result":{}}')
    assert message.id is UNSET
    assert message.response_id is None


def test_raw_members_are_kept_byte_for_byte():
    message = decode_message(b'{"id":1,"result":{"b": 1,\n "a":1.50}}')
    assert bytes(message.result) == b'{"b": 1,\n "a":1.50}'
    slow = decode_message(b'{"\\ud800":0,"id":1,"result": {"b": 1,\n "a":1.50} }')
    assert bytes(slow.result) == b'{"b": 1,\n "a":1.50}'
    assert slow.id == 1


def test_batches():
    batch = decode_messages(b' [{"id":1,"result":{}},\n{"method":"x"}]')
    assert [m.is_response for m in batch] == [True, False]
    assert [m.id for m in decode_messages(b'[{"id":1,"result":"\\ud800"},{"id":2,"result":1}]')] == [1, 2]
    assert len(decode_messages(b'{"id":1,"result":{}}')) == 1
    for text in (b"[]", b"[1]", b'[{"id":1}]', b'[{"id":1,"result":{}}'):
        with pytest.raises(MalformedMessage):
            decode_messages(text)


@pytest.mark.parametrize(
    ("raw", "code", "message", "data"),
    [
        (b'{"code":-32600,"message":"no","data":{"a": 1}}', -32600, "no", b'{"a": 1}'),
        (b'{"code":-32600,"message":"no"}', -32600, "no", None),
        (b'{"code":"-32001","message":5}', -32001, "", None),
        (b'{"code":-32001.0}', -32001, "", None),
        (b'{"code":1.5}', None, "", None),
        (b'{"code":true}', None, "", None),
        (b'{"code":"soon"}', None, "", None),
        (b'{"code":null,"data":null}', None, "", b"null"),
        (b'{"code":1e999}', None, "", None),
        (b'{"code":1,"message":"\\ud800"}', 1, "?", None),
        (b'"broken"', None, "broken", None),
        (b"null", None, "", None),
        (b"[1]", None, "", None),
    ],
)
def test_error_bodies_of_any_shape(raw, code, message, data):
    body = decode_error(raw)
    assert (body.code, body.message, body.data) == (code, message, data)


def test_the_text_of_an_error_is_bounded():
    assert len(decode_error(b'{"message":"%b"}' % (b"x" * 100_000)).message) == 4096


@given(
    st.integers(0, 2**70), TEXT, st.none() | st.dictionaries(TEXT, st.integers()), st.sampled_from([None, 2])
)
def test_requests_and_notifications_are_single_lines_that_read_back(number, method, params, indent):
    raw = None if params is None else json.dumps(params, indent=indent).replace("\n", "\r\n").encode()
    request = encode_request(number, method, raw)
    expected = {"jsonrpc": "2.0", "id": number, "method": method}
    rest = {} if params is None else {"params": params}
    assert json.loads(request) == expected | rest
    notification = encode_notification(method, raw)
    assert json.loads(notification) == {"jsonrpc": "2.0", "method": method} | rest
    for line in (request, notification):
        assert b"\n" not in line
        assert b"\r" not in line


def test_a_known_method_has_the_exact_bytes():
    assert encode_request(3, "tools/call", b'{"name":"a"}') == (
        b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a"}}'
    )
    assert encode_notification("notifications/initialized") == (
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    )


@given(st.integers() | TEXT, st.integers(-40000, 40000), TEXT)
def test_answers_echo_the_id(ident, code, text):
    assert json.loads(encode_result(ident, b'{"a":\n1}')) == {
        "jsonrpc": "2.0",
        "id": ident,
        "result": {"a": 1},
    }
    error = json.loads(encode_error(ident, code, text))
    assert error == {"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": text}}
    assert b"\n" not in encode_result(ident, b"{\n}") + encode_error(ident, code, text)
