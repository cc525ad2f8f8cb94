"""What the author of a handler imports: is this call really from onbeat, and has it been done already?

Standard library only, and nothing else of onbeat, so that it can be vendored as one folder. Any other Standard
Webhooks library verifies onbeat's calls as well.

    call = verify(request.headers, body, SECRET)         # raises SignatureInvalid: answer 401
    with connection:                                     # one transaction for the claim and the effect
        if done_once.claim(connection, call):
            connection.execute("UPDATE accounts SET ...")
"""

from onbeat.receiver.callback import Callback, WorkLost
from onbeat.receiver.deduplication import Deduplicator, TransactionRequired
from onbeat.receiver.verification import SignatureInvalid, VerifiedCall, verify

__all__ = [
    "Callback",
    "Deduplicator",
    "SignatureInvalid",
    "TransactionRequired",
    "VerifiedCall",
    "WorkLost",
    "verify",
]
