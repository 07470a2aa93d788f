"""An engine that takes predictions in the pieces that a cluster does, in this process."""

import pickle

from calibrant.predictions import OnRay


class InPieces(OnRay):
    """Work and results are pickled on their way, as between machines."""

    def _run_tasks(self, work, pieces, stage, progress):
        progress(stage, 0, len(pieces))
        for piece in pieces:
            work_there, piece_there = pickle.loads(pickle.dumps((work, piece)))
            for result in work_there(piece_there):
                yield pickle.loads(pickle.dumps(result))
            progress(stage, piece.number + 1, len(pieces))
