-- Of a completion, in a step.

drop_checkpoints({id})
