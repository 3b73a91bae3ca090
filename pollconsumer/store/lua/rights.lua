-- Check whether the caller may use commands, before any of them is used.
-- KEYS key
-- NEEDS rights
-- ARGV commands, with subcommands as SCRIPT|LOAD
-- Returns those that the caller may not use on the key

return lacking_rights(key, 1)
