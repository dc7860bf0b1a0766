"""All mutations, by what they take away."""

from chaos.mutations.belonging import BELONGING
from chaos.mutations.bounds import BOUNDS
from chaos.mutations.directory_syncs import DIRECTORY_SYNCS
from chaos.mutations.failing import FAILING
from chaos.mutations.file_syncs import FILE_SYNCS
from chaos.mutations.framing import FRAMING
from chaos.mutations.keeping import KEEPING
from chaos.mutations.opening import OPENING
from chaos.mutations.requests import REQUESTS

MUTATIONS = (
    *FILE_SYNCS,
    *DIRECTORY_SYNCS,
    *FRAMING,
    *BELONGING,
    *OPENING,
    *FAILING,
    *KEEPING,
    *REQUESTS,
    *BOUNDS,
)
