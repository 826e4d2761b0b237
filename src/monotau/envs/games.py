"""The names of the Atari games, and the sets of games that papers report; needs no emulator."""

from collections.abc import Mapping

PREFIX = "ALE/"

ATARI57 = (
    "alien",
    "amidar",
    "assault",
    "asterix",
    "asteroids",
    "atlantis",
    "bank_heist",
    "battle_zone",
    "beam_rider",
    "berzerk",
    "bowling",
    "boxing",
    "breakout",
    "centipede",
    "chopper_command",
    "crazy_climber",
    "defender",
    "demon_attack",
    "double_dunk",
    "enduro",
    "fishing_derby",
    "freeway",
    "frostbite",
    "gopher",
    "gravitar",
    "hero",
    "ice_hockey",
    "jamesbond",
    "kangaroo",
    "krull",
    "kung_fu_master",
    "montezuma_revenge",
    "ms_pacman",
    "name_this_game",
    "phoenix",
    "pitfall",
    "pong",
    "private_eye",
    "qbert",
    "riverraid",
    "road_runner",
    "robotank",
    "seaquest",
    "skiing",
    "solaris",
    "space_invaders",
    "star_gunner",
    "surround",
    "tennis",
    "time_pilot",
    "tutankham",
    "up_n_down",
    "venture",
    "video_pinball",
    "wizard_of_wor",
    "yars_revenge",
    "zaxxon",
)

GAME_SETS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "atari57": ("the games of most published tables", ATARI57),
    "atari55": (
        "the paper's games: the 57 without Defender and Surround",
        tuple(game for game in ATARI57 if game not in ("defender", "surround")),
    ),
    "atari5": (
        "five games that predict the median over 57 (Aitchison et al. 2023)",
        ("battle_zone", "double_dunk", "name_this_game", "phoenix", "qbert"),
    ),
    "hard-exploration": (
        "games with sparse rewards",
        ("freeway", "gravitar", "montezuma_revenge", "pitfall", "private_eye", "solaris", "venture"),
    ),
    # The paper's text names eight of the eleven games and a comment in its source two more; River Raid is the only
    # other game that it calls easy.
    "paper-easy": (
        "the games of the paper's Fig. 3a, the eleventh a guess",
        (
            "battle_zone",
            "berzerk",
            "hero",
            "kung_fu_master",
            "ms_pacman",
            "qbert",
            "riverraid",
            "tennis",
            "up_n_down",
            "video_pinball",
            "zaxxon",
        ),
    ),
    "paper-six": (
        "the paper's three hard and three easy games for DPE",
        ("montezuma_revenge", "private_eye", "venture", "ms_pacman", "riverraid", "up_n_down"),
    ),
}
"""Description and games of each set."""


def id_of(game: str) -> str:
    """Return the Gymnasium id of a game: 'ALE/MsPacman-v5' for 'ms_pacman'."""
    return f"{PREFIX}{game.title().replace('_', '')}-v5"


_BY_ID = {id_of(game): game for game in ATARI57}


def game_of(env_id: str) -> str | None:
    """Return the game of an id if it is one of the 57: 'ms_pacman' for 'ALE/MsPacman-v5'."""
    return _BY_ID.get(env_id)
