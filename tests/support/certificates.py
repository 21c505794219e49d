"""A certificate authority for tests, and what it signs, as PEM files."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path


_SIGNS = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates for this machine; each call of `issue` writes new files."""

    def __init__(self, directory: Path, name: str = "kvcq test") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.ca = directory / f"{name.replace(' ', '-')}-ca.pem"
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        # What RFC 5280 asks of an authority, and Python from 3.13 on.
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
        builder = (
            _builder(self._name, self._name, self._key, days=30)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(own, critical=False)
        )
        _replace(self.ca, _pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, name: str = "server", *, days: int = 30) -> tuple[Path, Path]:
        """A certificate for localhost and 127.0.0.1, and its key. It expired if `days` is below 0.

        Files of the same name are replaced, each at once.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        )
        builder = _builder(_name(name), self._name, key, days=days)
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(self._identifier, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        cert_file, key_file = (self._directory / f"{name}{end}" for end in (".pem", ".key"))
        _replace(cert_file, _pem(signed))
        _replace(
            key_file,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        return cert_file, key_file


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=60))
        .not_valid_after(now + timedelta(days=days))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _replace(file: Path, data: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, file)  # noqa: PTH105 - in one step, as whoever renews certificates does
