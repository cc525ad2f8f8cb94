"""A certificate authority made for a test run, and the servers' certificates that it signs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
FAR_AHEAD = datetime(2120, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Authority:
    """A certificate authority made for this test run."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    @property
    def file(self) -> Path:
        return self.folder / "ca.pem"

    def serve(self, name: str, *, until: datetime = FAR_AHEAD, self_signed: bool = False) -> ssl.SSLContext:
        """A server's context with a certificate for `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        issuer, signer = (subject, key) if self_signed else (self.name, self.key)
        certificate = _certificate(subject, issuer=issuer, key=key, until=until).sign(signer, hashes.SHA256())
        file = self.folder / f"{len(list(self.folder.iterdir()))}.pem"
        file.write_bytes(_pem(certificate) + _private_pem(key))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, *, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime, ca: bool = False
) -> x509.CertificateBuilder:
    text = str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    try:
        names: x509.GeneralName = x509.IPAddress(ip_address(text))
    except ValueError:
        names = x509.DNSName(text)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(LONG_AGO)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([names]), critical=False)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def make_authority(folder: Path) -> Authority:
    """A new one, whose certificate lies in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("onbeat test authority")
    made = Authority(folder, key, name)
    certificate = _certificate(name, issuer=name, key=key, until=FAR_AHEAD, ca=True).sign(key, hashes.SHA256())
    made.file.write_bytes(_pem(certificate))
    return made
