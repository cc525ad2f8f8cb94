"""Coverage-guided fuzzing of what reads other people's bytes, for as long as one likes. Not a part of any suite.

    python -m venv /tmp/fuzzing
    /tmp/fuzzing/bin/pip install -r requirements/runtime.lock
    /tmp/fuzzing/bin/pip install --no-deps --no-build-isolation -e .
    /tmp/fuzzing/bin/pip install atheris==3.0.0
    /tmp/fuzzing/bin/python -m tests.fuzz.run response -max_total_time=300

The first argument is one of response, url, retry_after, signature, tunnel; what follows it goes to libFuzzer, such as a
folder in which to keep what was found interesting. A finding is written to crash-…; put its bytes into a test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import atheris

with atheris.instrument_imports(include=["onbeat", "tests.fuzz"]):
    from tests.fuzz import invariants, pieces

_MOST_PIECES = 24
_RAW_BYTES = 12


def _response(provider: atheris.FuzzedDataProvider) -> None:
    method = "HEAD" if provider.ConsumeBool() else "POST"
    cuts = provider.ConsumeIntListInRange(provider.ConsumeIntInRange(0, 4), 0, 65_535)
    invariants.check_response(_put_together(provider, pieces.RESPONSE), method=method, cuts=cuts)


def _url(provider: atheris.FuzzedDataProvider) -> None:
    invariants.check_url(_put_text_together(provider, pieces.URL))


def _retry_after(provider: atheris.FuzzedDataProvider) -> None:
    invariants.check_retry_after(_put_text_together(provider, pieces.RETRY_AFTER))


def _signature(provider: atheris.FuzzedDataProvider) -> None:
    invariants.check_signature(_put_together(provider, pieces.SIGNATURE))


def _tunnel(provider: atheris.FuzzedDataProvider) -> None:
    invariants.check_tunnel(_put_together(provider, pieces.TUNNEL))


def _put_together(provider: atheris.FuzzedDataProvider, known: Sequence[bytes]) -> bytes:
    """Known pieces and raw bytes, as the fuzzer's own bytes choose."""
    parts: list[bytes] = []
    while provider.remaining_bytes() and len(parts) < _MOST_PIECES:
        chosen = provider.ConsumeIntInRange(0, len(known) + len(known) // 4)
        parts.append(known[chosen] if chosen < len(known) else provider.ConsumeBytes(_RAW_BYTES))
    return b"".join(parts)


def _put_text_together(provider: atheris.FuzzedDataProvider, known: Sequence[str]) -> str:
    encoded = [piece.encode("utf-8", "surrogatepass") for piece in known]
    return _put_together(provider, encoded).decode("utf-8", "surrogateescape")


TARGETS: dict[str, Callable[[atheris.FuzzedDataProvider], None]] = {
    "response": _response,
    "url": _url,
    "retry_after": _retry_after,
    "signature": _signature,
    "tunnel": _tunnel,
}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        raise SystemExit(f"usage: python -m tests.fuzz.run {{{'|'.join(TARGETS)}}} [options of libFuzzer]")
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda data: target(atheris.FuzzedDataProvider(data)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
