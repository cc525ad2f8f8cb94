"""`vet`: the tables, the IPv4 addresses inside IPv6 ones, and what an operator's list opens."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from onbeat.domain.egress import Allow, Deny, EgressRules, vet


def allowing(*networks: str, nat64: bool = False) -> EgressRules:
    return EgressRules(allow_networks=tuple(ip_network(network) for network in networks), nat64=nat64)


@pytest.mark.parametrize("address", ["8.8.8.8", "172.32.0.1", "172.15.255.255", "2606:4700:4700::1111", "2001:200::1"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert vet(address, rules=EgressRules()) == Allow()


@pytest.mark.parametrize("address", ["", "example.com", "127.1", "2130706433", "fe80::1%eth0", "::ffff:10.0.0.1"])
def test_what_is_no_public_address_is_denied(address: str) -> None:
    assert isinstance(vet(address, rules=EgressRules()), Deny)


def test_only_the_listed_networks_open() -> None:
    rules = allowing("10.0.0.0/8", "fd12::/16")
    assert vet("10.1.2.3", rules=rules) == Allow()
    assert vet("fd12::1", rules=rules) == Allow()
    for address in ("192.168.0.1", "127.0.0.1", "fd13::1", "::ffff:10.1.2.3"):
        assert isinstance(vet(address, rules=rules), Deny)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fe80::1", "fd00:ec2::254"]
)
def test_metadata_stays_closed_in_a_wide_list_and_opens_when_named(address: str) -> None:
    assert isinstance(vet(address, rules=allowing("0.0.0.0/0", "::/0")), Deny)
    assert vet(address, rules=allowing(address)) == Allow()


def test_nat64_is_judged_by_the_address_inside() -> None:
    assert isinstance(vet("64:ff9b::808:808", rules=EgressRules()), Deny)
    assert vet("64:ff9b::808:808", rules=allowing(nat64=True)) == Allow()
    for address in ("64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808"):
        assert isinstance(vet(address, rules=allowing(nat64=True)), Deny)
    assert isinstance(vet("64:ff9b::a00:1", rules=allowing("10.0.0.0/8", nat64=True)), Deny)
