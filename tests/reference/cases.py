"""The prompts of the goldens. A media part names its file relative to this folder."""


def text(string):
    return {"type": "text", "text": string}


def image(file):
    return {"type": "image", "image": f"media/{file}"}


def audio(file):
    return {"type": "audio", "audio": f"media/{file}"}


def video(file):
    return {"type": "video", "video": f"media/{file}"}


def user(*content):
    return {"role": "user", "content": list(content)}


def setting(pointer, value):
    return {"file": "processor_config.json", "pointer": pointer, "value": value}


def budget(tokens):
    return [setting("/image_processor/max_soft_tokens", tokens)]


QUESTION = text("What is in this image?")
SYSTEM = {"role": "system", "content": "You are a careful assistant."}
LONG = "def forward(self, x): return self.mlp(x) + 1.5; the cat sleeps. " * 5

# name: (messages, patches)
CASES = {
    "text": ([SYSTEM, user(text("Hello, describe the model in one line."))], []),
    "longtext": ([user(text(LONG))], []),
    "image_png": ([user(image("photo.png"), QUESTION)], []),
    "image_jpg": ([user(image("photo.jpg"), QUESTION)], []),
    "image_tall": ([user(image("tall.png"), QUESTION)], []),
    "image_exact": ([user(image("exact.png"), QUESTION)], []),
    "image_between": (
        [user(text("Look at this:"), image("photo.png"), text("Which colours do you see?"))],
        [],
    ),
    "two_images": (
        [user(image("photo.png"), image("tall.png"), text("Compare the two images."))],
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
    "image_budget_140": ([user(image("photo.png"), QUESTION)], budget(140)),
    "image_budget_280": ([user(image("photo.jpg"), QUESTION)], budget(280)),
    "image_budget_1120": ([user(image("photo.png"), QUESTION)], budget(1120)),
    "audio": ([user(audio("long.wav"), text("What do you hear?"))], []),
    # The shorter clip first: padding rows of the encoder must not reach the prompt.
    "two_sounds": (
        [user(audio("short.wav"), audio("long.wav"), text("Compare the two sounds."))],
        [],
    ),
    "image_audio": (
        [user(image("tall.png"), audio("short.wav"), text("What do you see and hear?"))],
        [],
    ),
    # Ten frames at 5 frames a second, of which four are taken.
    "video": (
        [user(video("clip.png"), text("What happens?"))],
        [setting("/video_processor/num_frames", 4)],
    ),
    "image_video": (
        [user(image("photo.png"), text("and"), video("clip.png"), text("What happens in the clip?"))],
        [setting("/video_processor/num_frames", 2)],
    ),
}

NO_AUDIO = [c for c in CASES if "audio" not in c and "sounds" not in c]
ONLY_E2B = ("image_budget_140", "image_budget_1120", "image_exact")
MODELS = {
    "gemma4_e2b": list(CASES),
    "gemma4_26b": [c for c in NO_AUDIO if c not in ONLY_E2B],
    "gemma4_unified": [c for c in CASES if c not in ONLY_E2B],
}
