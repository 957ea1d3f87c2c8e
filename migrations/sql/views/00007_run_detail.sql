-- What a failed run said of itself, or was found to have done, beside the cause's name.
ALTER TABLE runs ADD COLUMN detail text NOT NULL DEFAULT '';
