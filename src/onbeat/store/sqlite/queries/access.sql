-- API keys, signing secrets, saved answers: few rows. Bindings go by position, in the order of first appearance.

-- name: insert_key
INSERT INTO api_keys (
    key_id, namespace, name, secret_hash, scopes, created_at, expires_at, revoked_at, last_used_at
)
VALUES (
    :key_id, :namespace, :name, :secret_hash, :scopes, :created_at, :expires_at, :revoked_at, :last_used_at
);

-- name: get_key
SELECT key_id, namespace, name, secret_hash, scopes, created_at, expires_at, revoked_at, last_used_at
FROM api_keys
WHERE key_id = :key_id;

-- name: find_keys
SELECT key_id, namespace, name, secret_hash, scopes, created_at, expires_at, revoked_at, last_used_at
FROM api_keys
ORDER BY created_at, key_id;

-- name: revoke_key
UPDATE api_keys SET revoked_at = :now WHERE key_id = :key_id AND revoked_at IS NULL;

-- name: touch_key
UPDATE api_keys SET last_used_at = :now WHERE key_id = :key_id;

-- name: retire_secrets
UPDATE secrets SET retires_at = :retires_at
WHERE namespace = :namespace AND name = :name AND version <> :but_version AND retires_at IS NULL;

-- name: insert_secret
INSERT INTO secrets (namespace, name, version, ciphertext, created_at, retires_at)
VALUES (:namespace, :name, :version, :ciphertext, :created_at, :retires_at)
ON CONFLICT (namespace, name, version) DO NOTHING;

-- name: find_secrets
-- Walks the primary key of secrets.
SELECT namespace, name, version, ciphertext, created_at, retires_at
FROM secrets
WHERE namespace = :namespace AND (:name IS NULL OR name = :name)
ORDER BY created_at DESC, version DESC, name;

-- name: reserve_answer
-- Writes nothing where an answer is kept or being made. A reservation whose maker died is taken over.
INSERT INTO saved_answers (scope, key, fingerprint, created_at) VALUES (:scope, :key, :fingerprint, :now)
ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint, created_at = excluded.created_at
WHERE saved_answers.status = 0 AND saved_answers.created_at < :void_before;

-- name: get_answer
SELECT fingerprint, status, headers, body FROM saved_answers WHERE scope = :scope AND key = :key;

-- name: save_answer
UPDATE saved_answers SET fingerprint = :fingerprint, status = :status, headers = :headers, body = :body
WHERE scope = :scope AND key = :key;

-- name: drop_answer
DELETE FROM saved_answers WHERE scope = :scope AND key = :key;

-- name: prune_answers
-- Walks saved_answers_by_age.
DELETE FROM saved_answers
WHERE rowid IN (SELECT rowid FROM saved_answers WHERE created_at < :before ORDER BY created_at LIMIT :limit);
