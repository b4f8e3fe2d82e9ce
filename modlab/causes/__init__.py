"""Why a training does not learn: one table of causes, each with its evidence and with what tells it from its neighbours."""
