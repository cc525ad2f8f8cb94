"""The strict URL parser and the rules: every spelling that another parser would read otherwise."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import WebhookTarget
from onbeat.domain.webhook import check_webhook
from onbeat.domain.webhook_url import parse_url

PUBLIC = EgressRules()
WITH_HTTP = EgressRules(allow_http=True)

BLOCKED_ADDRESSES = """
    127.0.0.1 127.1 0x7f.1 0x7f.0.0.1 0x7f000001 2130706433 0177.0.0.1 017700000001 0 0x 0.0.0.0 0.0.0.0:8080
    2852039166 169.254.43518 169.254.169.254 168.63.129.16 ①②⑦.⓪.⓪.① 127。0。0。1 １２７.0.0.1 127.0.0.1.
    [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [::ffff:0:127.0.0.1] [64:ff9b::a9fe:a9fe]
    [64:ff9b:1::7f00:1] [2002:7f00:1::] [2002:a9fe:a9fe::] [2001::1] [fe80::1] [fec0::1] [fc00::1] [fd00:ec2::254]
    [ff02::1] [2001:db8::1] [3fff::1] [5f00::1] [64:ff9b::808:808] [::ffff:8.8.8.8]
    10.0.0.5 10.0.0.1 172.16.0.1 172.31.0.1 192.168.1.1 100.64.0.1 100.100.100.200 198.18.0.1 192.88.99.1 192.0.2.1
    192.0.0.192 198.51.100.1 203.0.113.9 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 134744072
""".split()  # noqa: SIM905  read as a table

BLOCKED_HOSTS = """
    localhost localhost. LOCALHOST LOCALHOST. x.localhost metadata.google.internal anything.internal printer.local db
    ｌｏｃａｌｈｏｓｔ
""".split()  # noqa: SIM905  read as a table

INVALID = [
    "http://example.com\\@169.254.169.254/",
    "http://a@b@169.254.169.254/",
    "https://user:pw@example.com/",
    "https://user@example.com/",
    "https://example.com:4 43/",
    "https://example.com:+443/",
    "https://example.com:4_4_3/",
    "https://example.com:0443/",
    "https://example.com:/",
    "https://example.com:٤٤٣/",
    "https:///path",
    "https:example.com",
    "https:/example.com",
    "//example.com/x",
    "example.com",
    "",
    "https://",
    "https://example.com/#@127.0.0.1",
    "https://example.com#fragment",
    "https://[::1]evil.com/",
    "https://[::1",
    "https://::1/",
    "https://[fe80::1%25eth0]/",
    "https://[1.2.3.4]/",
    "https://1.2.3.4.5/",
    "https://999.1.1.1/",
    "https://256.256.256.256/",
    "https://08.1.1.1/",
    "https://example.0x7g1.1x1.1/",
    "https://exa mple.com/",
    "https://example.com/a b",
    "https://exa\tmple.com/",
    "https://example.com/\r\nX-Injected: 1",
    "https://example.com/\x00",
    "https://example.com/\x7f",
    " https://example.com/",
    "https://example.com/café",
    "https://example.com/100%",
    "https://example.com/%zz",
    "https://example.com/<script>",
    "https://%31%32%37.0.0.1/",
    "https://-example.com/",
    "https://example..com/",
    "https://.example.com/",
    "https://" + "a" * 64 + ".com/",
    "https://a／b.com/",
    "https://😱.com/",
    "https://exa\ud800mple.com/",
]


def refusal(url: object, rules: EgressRules = PUBLIC) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        check_webhook(WebhookTarget(url=url), rules)  # type: ignore[arg-type]
    assert caught.value.field == "target.url"
    return caught.value


@pytest.mark.parametrize("host", BLOCKED_ADDRESSES)
@pytest.mark.parametrize("rules", [PUBLIC, WITH_HTTP])
def test_every_spelling_of_an_internal_address_is_blocked(host: str, rules: EgressRules) -> None:
    assert refusal(f"http://{host}/", rules).reason_code == "url_blocked_address"
    assert refusal(f"https://{host}/", rules).reason_code == "url_blocked_address"


@pytest.mark.parametrize("host", BLOCKED_HOSTS)
def test_names_of_internal_networks_are_blocked(host: str) -> None:
    assert refusal(f"https://{host}/").reason_code == "url_blocked_host"


@pytest.mark.parametrize("url", INVALID)
def test_ambiguous_urls_are_invalid(url: str) -> None:
    assert refusal(url).reason_code == "url_invalid"


@pytest.mark.parametrize("url", [None, 1, b"https://example.com/"])
def test_a_url_is_text(url: object) -> None:
    assert refusal(url).reason_code == "url_invalid"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("file:///etc/passwd", "scheme_not_allowed"),
        ("gopher://example.com/", "scheme_not_allowed"),
        ("ftp://example.com/", "scheme_not_allowed"),
        ("ws://example.com/", "scheme_not_allowed"),
        ("javascript:alert(1)", "scheme_not_allowed"),
        ("unix:/run/x.sock", "scheme_not_allowed"),
        ("https://example.com:99999/", "port_not_allowed"),
        ("https://example.com:0/", "port_not_allowed"),
        ("https://example.com:22/", "port_not_allowed"),
        ("https://example.com:25/", "port_not_allowed"),
        ("https://example.com:80/", "port_not_allowed"),
        ("https://example.com:5432/", "port_not_allowed"),
        ("http://example.com/", "https_required"),
        ("https://example.com/" + "a" * 2_029, "url_too_long"),
    ],
)
def test_each_refusal_has_its_code(url: str, code: str) -> None:
    assert refusal(url).reason_code == code


def test_a_url_of_2048_bytes_is_accepted() -> None:
    assert len(parse_url("https://example.com/" + "a" * 2_028).text) == 2_048


def test_own_url_is_refused_before_anything_else() -> None:
    rules = EgressRules.for_development(own=frozenset({("localhost", 8000)}))
    assert refusal("http://LOCALHOST:8000/v1/jobs", rules).reason_code == "self_target"
    check_webhook(WebhookTarget(url="http://localhost:8001/"), rules)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://exаmple.com", "xn--exmple-4nf.com"),  # Cyrillic а
        ("https://Kelvin.example", "kelvin.example"),  # U+212A
        ("https://EXAMPLE.com.", "example.com"),
        ("https://bücher.example", "xn--bcher-kva.example"),
        ("https://my_service.example.com", "my_service.example.com"),
        ("https://172.32.0.1", "172.32.0.1"),
        ("https://[2606:4700:4700:0::1111]", "2606:4700:4700::1111"),
        ("https://127.0.0.1.nip.io", "127.0.0.1.nip.io"),
        ("https://123.example", "123.example"),
    ],
)
def test_public_hosts_are_accepted_under_the_name_that_is_dialled(url: str, host: str) -> None:
    assert check_webhook(WebhookTarget(url=url), PUBLIC).host == host


def test_a_parsed_url_says_what_is_sent() -> None:
    url = parse_url("https://[2606:4700:4700::1111]:8443?x=1&y[]=%C3%A9")
    assert (url.port, url.authority, url.request_target) == (
        8443,
        "[2606:4700:4700::1111]:8443",
        b"/?x=1&y[]=%C3%A9",
    )
    assert parse_url("http://example.com:80").text == "http://example.com/"


def test_a_blank_or_non_ascii_path_is_refused_with_its_encoded_form() -> None:
    assert refusal("https://example.com/café?q=ü").remedy == "write https://example.com/caf%C3%A9?q=%C3%BC"
    assert refusal("https://example.com/100%").remedy == "write https://example.com/100%25"
    assert "%20" in str(refusal("https://example.com/a b").remedy)


def test_development_rules_open_loopback_http_and_ports_but_nothing_else() -> None:
    rules = EgressRules.for_development()
    for url in ("http://127.0.0.1:9/", "http://localhost:3000/x", "http://[::1]:80/", "https://127.8.8.8/"):
        check_webhook(WebhookTarget(url=url), rules)
    for host in ("10.0.0.1", "127.1", "[::ffff:127.0.0.1]", "169.254.169.254", "0.0.0.0"):
        assert refusal(f"http://{host}/", rules).reason_code == "url_blocked_address"


def test_allowed_hosts_open_names_not_ports() -> None:
    rules = EgressRules(allow_hosts=frozenset({"db", "*.corp.internal"}))
    check_webhook(WebhookTarget(url="https://db/"), rules)
    check_webhook(WebhookTarget(url="https://a.b.corp.internal/"), rules)
    assert refusal("https://corp.internal/", rules).reason_code == "url_blocked_host"
    assert refusal("https://evilcorp.internal/", rules).reason_code == "url_blocked_host"
    assert refusal("https://db:5432/", rules).reason_code == "port_not_allowed"


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_a_refusal(text: str) -> None:
    for candidate in (text, f"https://{text}", f"https://example.com/{text}"):
        try:
            url = parse_url(candidate)
        except DefinitionError:
            continue
        assert re.fullmatch(r"[\x21-\x7e]+", url.text)
        again = parse_url(url.text)
        assert again == url
