-- What one process tells the others: see store/hints.py.

-- name: send_hint
-- The server passes it on when the transaction commits. Such commits wait for each other, so hints are sent sparingly.
SELECT pg_notify('onbeat', :payload);

-- name: hear_nothing
-- Asked of the connection that listens, to learn whether it still does.
SELECT 1;
