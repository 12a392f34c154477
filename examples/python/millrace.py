"""millrace for Python: a thin layer over the C interface (include/millrace.h) with ctypes and nothing else.

    from millrace import Model, Engine
    model = Model("stories")
    engine = Engine(model)
    for event in engine.submit(text="Once upon a time", seed=7, max_tokens=32):
        print(event.text, end="", flush=True)

The library is the file that the environment variable MILLRACE_LIBRARY names, or libmillrace.so.0 where the system
finds it. Options are keyword arguments; a list gives an option several times.
"""

import ctypes
import json
import os
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_void_p

ABI_VERSION = 1
OK, TIMEOUT, END, BUFFER_TOO_SMALL = 0, 8, 9, 7
FINISH = {0: None, 1: "stop", 2: "length", 3: "cancelled", 4: "time_limit", 5: "error"}
ADD_SPECIAL, PARSE_SPECIAL, SKIP_SPECIAL = 1, 2, 4


class _Option(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class _Info(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("architecture", c_char_p), ("parameters", c_int64),
                ("weight_bytes", c_int64), ("context", c_int64), ("vocabulary", c_int64), ("warnings", c_char_p)]


class _Request(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("text", c_char_p), ("text_bytes", c_size_t), ("tokens", POINTER(c_int32)),
                ("token_count", c_size_t), ("messages", c_char_p), ("options", POINTER(_Option)),
                ("option_count", c_size_t), ("user_data", c_void_p)]


class _TokenLogprob(ctypes.Structure):
    _fields_ = [("token", c_int32), ("logprob", c_float)]


class _Event(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("stream", c_void_p), ("user_data", c_void_p), ("answer", c_int32),
                ("token", c_int32), ("text", POINTER(c_char)), ("text_bytes", c_size_t), ("logprob", c_float),
                ("finish", c_int32), ("last", c_int32), ("status", c_int32), ("message", c_char_p),
                ("top", POINTER(_TokenLogprob)), ("top_count", c_size_t), ("prompt_tokens", c_int64),
                ("cached_tokens", c_int64), ("generated_tokens", c_int64), ("queue_seconds", c_double),
                ("prefill_seconds", c_double), ("decode_seconds", c_double)]


library = ctypes.CDLL(os.environ.get("MILLRACE_LIBRARY", "libmillrace.so.0"))
_error = POINTER(c_void_p)
_options = [POINTER(_Option), c_size_t]
for _name, _returns, _arguments in [
        ("abi_version", c_uint32, []), ("version", c_char_p, []), ("status_name", c_char_p, [c_int32]),
        ("free", None, [c_void_p]),
        ("model_load", c_int32, [c_char_p, *_options, POINTER(c_void_p), _error]), ("model_free", None, [c_void_p]),
        ("model_describe", c_int32, [c_void_p, POINTER(_Info), _error]),
        ("tokenize", c_int32, [c_void_p, c_char_p, c_size_t, c_uint32, POINTER(c_int32), c_size_t, POINTER(c_size_t), _error]),
        ("detokenize", c_int32, [c_void_p, POINTER(c_int32), c_size_t, c_uint32, POINTER(c_void_p), POINTER(c_size_t), _error]),
        ("render_chat", c_int32, [c_void_p, c_char_p, c_int32, POINTER(c_void_p), _error]),
        ("embed", c_int32, [c_void_p, POINTER(c_char_p), c_size_t, *_options, POINTER(c_void_p), POINTER(c_size_t), _error]),
        ("engine_create", c_int32, [c_void_p, *_options, POINTER(c_void_p), _error]), ("engine_free", None, [c_void_p]),
        ("engine_techniques", c_int32, [c_void_p, POINTER(c_void_p), _error]),
        ("submit", c_int32, [c_void_p, POINTER(_Request), POINTER(c_void_p), _error]),
        ("cancel", c_int32, [c_void_p, _error]), ("stream_free", None, [c_void_p]),
        ("poll", c_int32, [c_void_p, c_void_p, c_int32, POINTER(_Event), _error])]:
    _function = getattr(library, "millrace_" + _name)
    _function.restype, _function.argtypes = _returns, _arguments
if library.millrace_abi_version() < ABI_VERSION:
    raise ImportError(f"libmillrace has ABI version {library.millrace_abi_version()}, this module needs {ABI_VERSION}")


def _status_name(status):
    return library.millrace_status_name(status).decode()


class MillraceError(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = _status_name(status)


def _take_text(pointer, size=None):
    """Returns the text at a pointer that the caller owns, and frees it."""
    if not pointer:
        return ""
    text = ctypes.string_at(pointer) if size is None else ctypes.string_at(pointer, size)
    library.millrace_free(pointer)
    return text.decode("utf-8", "replace")


def _call(name, *arguments, also=()):
    """Calls a function that has the parameter `error`. Returns OK or a status of `also`, else raises MillraceError."""
    error = c_void_p()
    status = getattr(library, "millrace_" + name)(*arguments, byref(error))
    if status != OK and status not in also:
        raise MillraceError(status, _take_text(error.value))
    return status


def _text_of(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def _option_array(options):
    pairs = [(name, one) for name, value in options.items() for one in (value if isinstance(value, (list, tuple)) else [value])]
    return (_Option * len(pairs))(*[_Option(name.encode(), _text_of(value).encode("utf-8", "surrogateescape")) for name, value in pairs]), len(pairs)


class Model:
    def __init__(self, path="", **options):
        self.handle = c_void_p()
        _call("model_load", path.encode(), *_option_array(options), byref(self.handle))

    def __del__(self):
        library.millrace_model_free(self.handle)

    def describe(self):
        info = _Info(struct_size=ctypes.sizeof(_Info))
        _call("model_describe", self.handle, byref(info))
        values = {name: getattr(info, name) for name, *_ in _Info._fields_[1:]}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}

    def tokenize(self, text, flags=ADD_SPECIAL | PARSE_SPECIAL):
        data = text.encode()
        tokens, count = (c_int32 * len(data))(), c_size_t()  # enough for most texts
        while _call("tokenize", self.handle, data, len(data), flags, tokens, len(tokens), byref(count),
                    also=(BUFFER_TOO_SMALL,)) == BUFFER_TOO_SMALL:
            tokens = (c_int32 * count.value)()
        return list(tokens[:count.value])

    def detokenize(self, tokens, flags=SKIP_SPECIAL):
        text, size = c_void_p(), c_size_t()
        _call("detokenize", self.handle, (c_int32 * len(tokens))(*tokens), len(tokens), flags, byref(text), byref(size))
        return _take_text(text.value, size.value)

    def render_chat(self, messages, add_generation_prompt=True):
        text = c_void_p()
        _call("render_chat", self.handle, json.dumps(messages).encode(), int(add_generation_prompt), byref(text))
        return _take_text(text.value)

    def embed(self, texts, **options):
        values, width = c_void_p(), c_size_t()
        array = (c_char_p * len(texts))(*[text.encode() for text in texts])
        _call("embed", self.handle, array, len(texts), *_option_array(options), byref(values), byref(width))
        flat = list((c_float * (len(texts) * width.value)).from_address(values.value))
        library.millrace_free(values)
        return [flat[i * width.value:(i + 1) * width.value] for i in range(len(texts))]


class Event:
    """A copy of an event, which stays valid."""

    def __init__(self, event):
        self.text = ctypes.string_at(event.text, event.text_bytes).decode("utf-8", "replace")
        self.token, self.answer, self.logprob = event.token, event.answer, event.logprob
        self.finish, self.last = FINISH[event.finish], bool(event.last)
        self.status, self.message = _status_name(event.status), event.message.decode("utf-8", "replace")
        self.top = [(event.top[i].token, event.top[i].logprob) for i in range(event.top_count)]
        self.prompt_tokens, self.cached_tokens = event.prompt_tokens, event.cached_tokens
        self.generated_tokens = event.generated_tokens
        self.user_data = event.user_data or 0  # ctypes has None for 0


class Stream:
    """The events of one request, to iterate over."""

    def __init__(self, engine, handle):
        self.engine, self.handle = engine, handle

    def __del__(self):
        library.millrace_stream_free(self.handle)

    def __iter__(self):
        while (event := self.poll()) is not None:
            yield event

    def poll(self, timeout_ms=-1):
        """Returns the next event, TIMEOUT, or None after the last one."""
        event = _Event(struct_size=ctypes.sizeof(_Event))
        status = _call("poll", None, self.handle, timeout_ms, byref(event), also=(TIMEOUT, END))
        return Event(event) if status == OK else TIMEOUT if status == TIMEOUT else None

    def cancel(self):
        _call("cancel", self.handle)


class Engine:
    def __init__(self, model, **options):
        self.handle = c_void_p()
        _call("engine_create", model.handle, *_option_array(options), byref(self.handle))

    def __del__(self):
        self.free()

    def free(self):
        handle, self.handle = self.handle, c_void_p()
        library.millrace_engine_free(handle)

    def techniques(self):
        text = c_void_p()
        _call("engine_techniques", self.handle, byref(text))
        return json.loads(_take_text(text.value))

    def submit(self, text=None, tokens=None, messages=None, user_data=0, **options):
        """Queues a request and returns its Stream. Exactly one of `text`, `tokens` and `messages` is not None.

        `user_data`: an integer, returned in every event.
        """
        request = _Request(struct_size=ctypes.sizeof(_Request), user_data=user_data)
        if text is not None:
            request.text = text.encode()
            request.text_bytes = len(text.encode())
        if tokens is not None:
            request.tokens, request.token_count = (c_int32 * len(tokens))(*tokens), len(tokens)
        if messages is not None:
            request.messages = json.dumps(messages).encode()
        request.options, request.option_count = _option_array(options)
        stream = c_void_p()
        _call("submit", self.handle, byref(request), byref(stream))
        return Stream(self, stream)

    def poll(self, timeout_ms=-1):
        """Returns the next event of any stream, TIMEOUT, or None after the last one of all."""
        event = _Event(struct_size=ctypes.sizeof(_Event))
        status = _call("poll", self.handle, None, timeout_ms, byref(event), also=(TIMEOUT, END))
        return Event(event) if status == OK else TIMEOUT if status == TIMEOUT else None
