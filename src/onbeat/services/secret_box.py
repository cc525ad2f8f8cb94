"""Encryption of signing secrets at rest: AES-256-GCM, bound to the place where the text belongs."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from onbeat.domain.errors import ConfigError

KEY_BYTES = 32
_NONCE_BYTES = 12
_FORMAT = b"\x01"


class SecretBox:
    """Encrypts with one master key. The context is authenticated: a ciphertext moved to another name does not open."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ConfigError("the master key must be 32 bytes", field="master_key")
        self._cipher = AESGCM(key)

    def encrypt(self, text: str, *, context: str) -> bytes:
        """Format byte, nonce, ciphertext with tag."""
        nonce = os.urandom(_NONCE_BYTES)
        return _FORMAT + nonce + self._cipher.encrypt(nonce, text.encode(), context.encode())

    def decrypt(self, ciphertext: bytes, *, context: str) -> str:
        """The text. Raises ConfigError: a wrong master key is the operator's to mend, and nothing may go on without."""
        nonce, body = ciphertext[1 : 1 + _NONCE_BYTES], ciphertext[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, body, context.encode()).decode()
        except (InvalidTag, ValueError):  # ValueError: cut short
            raise ConfigError(
                "the signing secrets in the database were encrypted with another master key",
                field="master_key",
                remedy="start with the key that this database was first used with; all nodes have the same",
            ) from None


def parse_master_key(text: str) -> bytes:
    """A key as it is written in a file or setting: base64 of 32 bytes."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError("the master key must be base64 of 32 bytes", field="master_key")
    return key


def read_master_key(path: Path) -> bytes | None:
    """The key in that file. None: there is no file. Raises ConfigError where it is no key or cannot be read."""
    try:
        return parse_master_key(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the master key {path} cannot be read: {error}", field="master_key") from None


def load_or_create_master_key(path: Path) -> bytes:
    """The key in the file beside the data file; drawn and written (mode 0600, durable) when there is none.

    Raises ConfigError where the file is no key or cannot be read or written.
    """
    key = read_master_key(path)
    if key is None:
        key = os.urandom(KEY_BYTES)
        save_master_key(path, key)
    return key


def save_master_key(path: Path, key: bytes) -> None:
    """Write a key as it is read again: mode 0600, whole or not at all, in the place of what was there."""
    _write_durably(path, base64.b64encode(key) + b"\n")


def _write_durably(path: Path, content: bytes) -> None:
    """The whole file or none, whenever the process or the power ends: half a key, or a key whose name was lost, would
    leave a database that nothing opens.
    """
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)  # of a start that was killed; whoever starts holds the data file's lock
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
