"""The prompts of the Qwen goldens: (messages, patches), or bare ids where a template is in the way."""

from cases import LONG, QUESTION, SYSTEM, image, text, user, video

# Five of the clip's eleven frames instead of four: the last pair is one frame twice.
FIVE_FRAMES = [{"file": "video_preprocessor_config.json", "pointer": "/fps", "value": 2.5}]

CASES = {
    "text": ([SYSTEM, user(text("Hello, describe the model in one line."))], []),
    "longtext": ([user(text(LONG))], []),
    "image_png": ([user(image("photo.png"), QUESTION)], []),
    "image_jpg": ([user(image("photo.jpg"), QUESTION)], []),
    "image_tall": ([user(image("tall.png"), QUESTION)], []),
    "image_between": (
        [user(text("Look at this:"), image("photo.png"), text("Which colours do you see?"))],
        [],
    ),
    "three_images": (
        [
            user(
                image("tall.png"),
                text("first,"),
                image("exact.png"),
                text("second, and third:"),
                image("photo.jpg"),
                text("Which is brighter?"),
            )
        ],
        [],
    ),
    "image_turns": (
        [
            user(image("photo.png"), QUESTION),
            {"role": "assistant", "content": "A red square and a green circle."},
            user(text("Which of them is larger?")),
        ],
        [],
    ),
    "video": ([user(video("small.png"), text("What happens?"))], []),
    "video_odd": ([user(video("small.png"), text("What happens?"))], FIVE_FRAMES),
    "image_video": (
        [
            user(
                image("photo.png"),
                text("and"),
                video("small.png"),
                text("then"),
                image("tall.png"),
                text("What happens in the clip?"),
            )
        ],
        FIVE_FRAMES,
    ),
}
# Shorter than the convolution's kernel of four, and as long.
IDS = {f"ids_{n}": list(range(70, 70 + 3 * n, 3)) for n in (1, 2, 3, 4)}

MOE = ["text", "longtext", "image_png", "three_images", "video_odd", "image_video"]
MODELS = {
    "qwen3_vl": list(CASES),
    "qwen3_vl_moe": MOE,
    "qwen3_5": [*CASES, *IDS],
    "qwen3_5_moe": [*MOE, "ids_2"],
    "qwen3": ["text", "longtext", "ids_1"],
}
