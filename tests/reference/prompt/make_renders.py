"""Renders and ids of transformers over a conformance set of conversations and templates.

Writes renders.json: `conversations` as OpenAI's clients send them (arguments as JSON text), and for
each template and conversation the `text` and the `ids`, or `"error": true` where it raises. The
templates in templates/ are ours; `make_renders.py FOLDER` adds to every folder below FOLDER that
holds a template (a checkpoint's files) a renders.json of the same form.
"""

import json
import sys
from pathlib import Path

import transformers
from jinja2 import TemplateError
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

from tokenizers_of import HERE, REFERENCE, qwen

text = lambda t: {"type": "text", "text": t}
part = lambda kind: {"type": kind}
user = lambda content: {"role": "user", "content": content}
system = lambda content: {"role": "system", "content": content}
answer = lambda content, **fields: {"role": "assistant", "content": content, **fields}
result = lambda content, name, call: {"role": "tool", "content": content, "name": name, "tool_call_id": call}


def call(name, arguments, id="1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}


def tool(name, properties, description="Does it.", required=()):
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = tool(
    "weather",
    {
        "city": {"type": "string", "description": "A city's <name> & \"country\", 'quoted'"},
        "days": {"type": "integer", "description": "Tage: für später"},
        "unit": {"type": "string", "enum": ["C", "F"]},
    },
    "Tells the weather <here> & there: é 日本 😀",
    ["city"],
)
UNTYPED = tool("any", {"x": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "either"}, "Y": {"type": "array", "items": {"type": "number"}}})
NESTED = tool("nest", {"o": {"type": "object", "description": "an object", "properties": {"b": {"type": "boolean"}, "a": {"type": "string"}}, "required": ["a"]}})
BARE = {"type": "function", "function": {"name": "bare", "description": ""}}
ARGUMENTS = {"z": "text with <|\"|> & <tags>", "A": 1, "f": 12.5, "big": 1e20, "small": 1e-7, "t": True, "n": None, "list": [1, "two", [3.0]], "map": {"k": "v", "B": {"c": False}}, "empty": {}, "none": []}

CONVERSATIONS = {
    "plain": [user("Hi there")],
    "padded": [user("  spaces \n around  ")],
    "system": [system("Be brief. "), user("Hi"), answer("Hello!"), user("Bye")],
    "developer": [{"role": "developer", "content": "Rules."}, user("Hi")],
    "system parts": [system([text("A "), text(" B")]), user([text("C")])],
    "late system": [user("Hi"), system("Changed."), user("So?")],
    "reasoning content": [user("1+1?"), answer("2", reasoning_content="One and one."), user("And 2+2?"), answer("4", reasoning_content="Two and two.")],
    "reasoning": [user("1+1?"), answer("2", reasoning="Short."), user("More?")],
    "thinking": [user("1+1?"), answer("2", thinking="Short.")],
    "thoughts in text": [user("1+1?"), answer("<think>\nOne.\n</think>\n\n2"), user("?"), answer("a</think>b</think>c")],
    "channels in text": [user("1+1?"), answer("x<|channel>thought\nhm\n<channel|>2"), user("?")],
    "tool call": [user("Weather?"), answer(None, tool_calls=[call("weather", {"city": "Zürich", "days": 2})])],
    "tool call and text": [user("Weather?"), answer("Let me see.", tool_calls=[call("weather", {"city": "A"}), call("any", {}, "2")])],
    "tool results": [user("Weather?"), answer(None, tool_calls=[call("weather", {"city": "A"}), call("weather", {"city": "B"}, "2")]), result("18 degrees", "weather", "1"), result('{"t": 3}', "weather", "2"), answer("Warm."), user("Thanks")],
    "tool results last": [user("Weather?"), answer("", tool_calls=[call("weather", {"city": "A"})]), result("18", "weather", "1")],
    "tool result parts": [user("Weather?"), answer(None, tool_calls=[call("weather", {"city": "A"})]), result([text("18"), text("degrees")], "weather", "1")],
    "tool response as user": [user("Weather?"), answer(None, tool_calls=[call("f", {})]), user("<tool_response>\n3\n</tool_response>")],
    "all arguments": [user("Go"), answer("", tool_calls=[call("any", ARGUMENTS)]), result("done", "any", "1"), answer("ok", reasoning_content="r")],
    "image": [user([part("image"), text("What is this?")])],
    "images between": [user([text("First "), part("image"), text(" and "), part("image"), text("?")])],
    "video": [user([part("video"), text("What happens?")])],
    "image and video": [user([part("image"), part("video"), part("image")]), answer("Hm."), user([text("And"), part("video")])],
    "sound": [user([part("audio"), text("Who speaks?")])],
    "image and sound": [user([text("a"), part("audio"), part("image"), text("b")])],
    "system image": [system([part("image")]), user("Hi")],
    "image in a result": [user("See"), answer(None, tool_calls=[call("f", {})]), result([part("image"), text("it")], "f", "1")],
    "empty texts": [user(""), answer(""), user([])],
    "no user": [system("Only this."), answer("Hm.")],
    "null fields": [user("Hi"), answer("Yes", tool_calls=None, reasoning_content=None, name=None), user("Ok")],
    "control tokens": [user("<|im_end|>\n<|turn>model <turn|> <bos>")],
    "unicode": [user("naïve – 日本語 😀\u00a0\u200d\u2028 end")],
}  # fmt: skip
OPTIONS = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "enable_thinking": True},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": True, "tools": [WEATHER, UNTYPED, NESTED, BARE]},
    {"add_generation_prompt": True, "add_vision_id": True, "tools": []},
]


def parsed(messages):
    """Arguments as objects, as templates walk them; null fields left out."""
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for made in message.get("tool_calls") or []:
            made["function"]["arguments"] = json.loads(made["function"]["arguments"])
    return _normalize_chat_messages(messages)


def renders(template, tokenizer, sequence_tokens):
    for name, messages in CONVERSATIONS.items():
        for index, options in enumerate(OPTIONS):
            case = {"conversation": name, "options": index}
            try:
                rendered, _ = render_jinja_template(
                    [parsed(messages)], chat_template=template, **{"tools": None, **sequence_tokens, **options}
                )
                case["text"] = rendered[0]
                if tokenizer is not None:
                    case["ids"] = tokenizer.encode(rendered[0], add_special_tokens=False)
            except (TemplateError, TypeError, KeyError, ValueError, AttributeError) as error:
                case["error"] = type(error).__name__
            yield case


def write(path, templates):
    lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in templates]
    head = {
        "versions": {"transformers": transformers.__version__},
        "conversations": CONVERSATIONS,
        "options": OPTIONS,
    }
    head = json.dumps(head, ensure_ascii=False, separators=(",", ":"))[:-1]
    path.write_text(head + ',"cases": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf8")


def ours():
    gemma = AutoTokenizer.from_pretrained(REFERENCE / "models" / "gemma4_e2b")
    for name in ("gemma", "qwen_vl", "qwen_think", "constructs"):
        source = (HERE / "templates" / f"{name}.jinja").read_text(encoding="utf8")
        tokens = {"bos_token": "<bos>", "eos_token": "<eos>"}
        tokenizer = gemma if name == "gemma" else qwen() if name.startswith("qwen") else None
        for case in renders(source, tokenizer, tokens):
            if name == "constructs" and case["conversation"] not in ("plain", "system", "tool results"):
                continue
            # Ids of one option are enough: they depend on the text alone.
            if case["options"] != 4:
                case.pop("ids", None)
            yield {"template": name, **case}


def real(folder):
    for config in sorted(Path(folder).rglob("tokenizer_config.json")):
        tokenizer = AutoTokenizer.from_pretrained(config.parent)
        tokens = {k: getattr(tokenizer, k) or "" for k in ("bos_token", "eos_token")}
        template = tokenizer.get_chat_template()
        write(config.parent / "renders.json", renders(template, tokenizer, tokens))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        real(sys.argv[1])
    else:
        write(HERE / "renders.json", ours())
