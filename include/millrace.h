/* clang-format off */
/* millrace.h: the C interface of millrace, for programs in any language. Link with -lmillrace (pkg-config millrace).
 *
 *   millrace_model *model;          millrace_model_load("", NULL, 0, &model, &error);        "": the built-in model
 *   millrace_engine *engine;        millrace_engine_create(model, NULL, 0, &engine, &error);
 *   millrace_request request = {.struct_size = sizeof request, .text = "Once upon a time", .text_bytes = 16};
 *   millrace_stream *stream;        millrace_submit(engine, &request, &stream, &error);
 *   millrace_event event = {.struct_size = sizeof event};
 *   while (millrace_poll(engine, stream, -1, &event, &error) == MILLRACE_OK)
 *     fwrite(event.text, 1, event.text_bytes, stdout);
 *   millrace_stream_free(stream);   millrace_engine_free(engine);   millrace_model_free(model);
 *
 * The same request has the same tokens as with `millrace run`, whatever other requests the engine runs. examples/c and
 * examples/python are complete programs; docs/c-api.md lists the options.
 *
 * Errors. A function that can fail returns a millrace_status. If its parameter `error` is not NULL and the status is an
 * error, *error is a message in English that the caller frees with millrace_free(); otherwise *error is NULL. No
 * function ends the process or throws. A NULL handle and a struct_size that is too small are MILLRACE_INVALID_ARGUMENT.
 *
 * Ownership. A handle is freed by its own function, in any order: an engine keeps its model, a stream its engine. The
 * functions that free accept NULL. Texts that are passed in are copied. Arrays and texts returned through a pointer to
 * a pointer are freed with millrace_free(). Texts in millrace_event and millrace_model_info belong to the handle, as
 * described there.
 *
 * Threads. Every function may be called from any thread, at the same time, with three exceptions. No call may use a
 * handle while another one frees it. A stream is polled by one thread at a time. While a thread polls an engine with
 * stream NULL, no other thread polls this engine, or polls or frees one of its streams.
 *
 * Versions. Functions and constants are never removed or changed while the library is libmillrace.so.0. Later versions
 * append members to structures. Every structure begins with struct_size, which the caller sets to the size it was
 * compiled with; members beyond this size are neither read nor written.
 */
/* clang-format on */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increases with each addition to this header. millrace_abi_version() returns the value of the library: a program needs
 * a library whose value is at least the one it was compiled with. */
#define MILLRACE_ABI_VERSION 1
uint32_t millrace_abi_version(void);

/* Returns "millrace 0.1.0 (1234567890ab)": the version and the commit that the library was built from. Static. */
const char* millrace_version(void);

typedef int32_t millrace_status;
enum {
  MILLRACE_OK = 0,
  MILLRACE_INVALID_ARGUMENT = 1, /* NULL, an unknown option, a value out of bounds */
  MILLRACE_CORRUPT = 2,          /* a model file that is damaged or cannot be read */
  MILLRACE_UNSUPPORTED = 3,      /* valid, but not implemented; the message names the part */
  MILLRACE_OUT_OF_RESOURCES = 4, /* memory, or a full queue; the same call may succeed later */
  MILLRACE_CANCELLED = 5,
  MILLRACE_INTERNAL = 6,         /* a fault of millrace */
  MILLRACE_BUFFER_TOO_SMALL = 7, /* nothing was written; the call returns the size that is needed */
  MILLRACE_TIMEOUT = 8,          /* not an error: no event arrived in time */
  MILLRACE_END = 9               /* not an error: no further event will arrive */
};

/* Returns the name of a status: "MILLRACE_OK", or "?" for another value. Static. */
const char* millrace_status_name(millrace_status status);

/* Frees what a function of this library returned through a pointer to a pointer: messages, texts and arrays. */
void millrace_free(void* memory);

/* An option: its name and value, both UTF-8 and terminated by 0; docs/c-api.md lists the names. A repeatable option may
 * be given several times, such as {"use", "kv_format=kivi:bits=2"} for any technique of `millrace techniques`. An
 * unknown name is an error whose message lists the names. */
typedef struct millrace_option {
  const char* name;
  const char* value;
} millrace_option;

/* ---- Models ----------------------------------------------------------------------------------------------------- */

/* Weights, tokenizer and chat template. Immutable; any number of engines may share it. */
typedef struct millrace_model millrace_model;

/* Loads a model. `path`: a GGUF file, a .safetensors file, a Hugging Face folder, or the name of a model that is built
 * into the library, such as "stories"; "" or NULL: the default built-in model. `options` [option_count]: threads,
 * context, memory, pack, packed_cache, packed_cache_path, chat_template, use (families router, weights). */
millrace_status millrace_model_load(const char* path, const millrace_option* options, size_t option_count,
                                    millrace_model** model, char** error);
void millrace_model_free(millrace_model* model);

typedef struct millrace_model_info {
  size_t struct_size;       /* in */
  const char* name;         /* valid until the model is freed */
  const char* architecture; /* "llama"; valid until the model is freed */
  int64_t parameters;       /* number of weights */
  int64_t weight_bytes;     /* as stored in memory */
  int64_t context;          /* tokens of the longest text that the model was trained for */
  int64_t vocabulary;       /* number of tokens; ids are 0 to vocabulary - 1 */
  const char* warnings;     /* problems that did not prevent loading, one per line; valid until the model is freed */
} millrace_model_info;

millrace_status millrace_model_describe(const millrace_model* model, millrace_model_info* info, char** error);

/* Flags of millrace_tokenize() and millrace_detokenize(). */
enum {
  MILLRACE_ADD_SPECIAL = 1,   /* add the start token, and others, that the model expects around a text */
  MILLRACE_PARSE_SPECIAL = 2, /* names of control tokens in the text, such as <|im_end|>, become these tokens */
  MILLRACE_SKIP_SPECIAL = 4   /* control tokens produce no text */
};

/* Converts `text` [text_bytes], UTF-8, to token ids in `tokens` [capacity]. *count: out, number of tokens, also with
 * MILLRACE_BUFFER_TOO_SMALL. To learn it, call with capacity 0. A text may have more tokens than bytes. `tokens` may
 * be NULL if capacity is 0. */
millrace_status millrace_tokenize(const millrace_model* model, const char* text, size_t text_bytes, uint32_t flags,
                                  int32_t* tokens, size_t capacity, size_t* count, char** error);

/* Converts `tokens` [count] to text. *text: out, terminated by 0, freed by the caller. *text_bytes: out, without that
 * 0; may be NULL. Bytes of the text that are not UTF-8 are returned as they are. */
millrace_status millrace_detokenize(const millrace_model* model, const int32_t* tokens, size_t count, uint32_t flags,
                                    char** text, size_t* text_bytes, char** error);

/* Renders a conversation with the model's chat template. `messages`: a JSON array of {"role", "content"} objects, or an
 * object with "messages" and further variables of the template. `add_generation_prompt`: not 0: the text ends where the
 * answer begins. *text: out, terminated by 0, freed by the caller. A request with `messages` does this itself. */
millrace_status millrace_render_chat(const millrace_model* model, const char* messages, int32_t add_generation_prompt,
                                     char** text, char** error);

/* Computes one embedding per text. `texts` [text_count], UTF-8, terminated by 0. *values: out, [text_count, *width],
 * row by row, freed by the caller. *width: out, values of one embedding. `options` [option_count]: pooling,
 * prompt_name, dimensions, raw (true: do not normalize to length 1), kv_format, batch_tokens, threads. Each call
 * allocates its own buffers, so pass many texts at once. */
millrace_status millrace_embed(const millrace_model* model, const char* const* texts, size_t text_count,
                               const millrace_option* options, size_t option_count, float** values, size_t* width,
                               char** error);

/* ---- Engines and requests --------------------------------------------------------------------------------------- */

/* Runs many requests at the same time on one model, on threads of its own. */
typedef struct millrace_engine millrace_engine;

/* One request and its unread events. */
typedef struct millrace_stream millrace_stream;

/* Creates an engine. `options` [option_count]: threads, context, max_streams, queue, kv_tokens, batch_tokens, lora,
 * use, and others; `use` chooses techniques of every family that belongs neither to a model nor to a request. Events
 * that nobody polls take bounded memory: an engine holds at most `open_streams` streams that are not freed, and it
 * cancels a stream that has `unread_events` unread events. */
millrace_status millrace_engine_create(const millrace_model* model, const millrace_option* options, size_t option_count,
                                       millrace_engine** engine, char** error);

/* Cancels all requests and waits until the engine has stopped. Streams must still be freed; their polls return what has
 * arrived, and the end. */
void millrace_engine_free(millrace_engine* engine);

/* Returns, in *json, a JSON array of the techniques that the options chose: [{"family", "name", "options", "effect"}].
 * Freed by the caller. */
millrace_status millrace_engine_techniques(const millrace_engine* engine, char** json, char** error);

/* A request: exactly one of text, tokens and messages is not NULL. */
typedef struct millrace_request {
  size_t struct_size;             /* in */
  const char* text;               /* UTF-8 text to continue as it is */
  size_t text_bytes;              /* bytes of `text` */
  const int32_t* tokens;          /* token ids to continue */
  size_t token_count;             /* number of `tokens` */
  const char* messages;           /* a conversation to answer, as for millrace_render_chat(); terminated by 0 */
  const millrace_option* options; /* max_tokens, seed, temperature, top_k, stop, json_schema, document, use, ... */
  size_t option_count;            /* number of `options` */
  void* user_data;                /* returned in every event of this request */
} millrace_request;

/* Queues a request; a JSON schema or grammar is compiled first. *stream: out. The stream must be freed, also after its
 * last event. MILLRACE_OUT_OF_RESOURCES: the queue is full, or `open_streams` streams are open. */
millrace_status millrace_submit(millrace_engine* engine, const millrace_request* request, millrace_stream** stream,
                                char** error);

/* Asks the engine to end the request. Events until then still arrive; the last one has MILLRACE_FINISH_CANCELLED,
 * unless the request ended before. */
millrace_status millrace_cancel(millrace_stream* stream, char** error);

/* Frees the stream, cancels its request if it runs, and discards its unread events. */
void millrace_stream_free(millrace_stream* stream);

enum {
  MILLRACE_FINISH_NONE = 0,   /* the answer continues */
  MILLRACE_FINISH_STOP = 1,   /* an end token, a stop text, or the end of the JSON schema or grammar */
  MILLRACE_FINISH_LENGTH = 2, /* max_tokens, or a full context */
  MILLRACE_FINISH_CANCELLED = 3,
  MILLRACE_FINISH_TIME_LIMIT = 4, /* time_limit_seconds */
  MILLRACE_FINISH_ERROR = 5       /* see `status` and `message` of the event */
};

typedef struct millrace_token_logprob {
  int32_t token;
  float logprob; /* natural logarithm of the probability */
} millrace_token_logprob;

/* One token of an answer, the end of an answer, or both. */
typedef struct millrace_event {
  size_t struct_size;      /* in */
  millrace_stream* stream; /* the stream that the event belongs to */
  void* user_data;         /* as in the request */
  int32_t answer;          /* index of the answer, with options answers, best_of or beams; otherwise 0 */
  int32_t token;           /* the token; -1: the event only has text that was held back, or ends the answer */
  const char* text;        /* whole UTF-8 sequences, terminated by 0; valid until the stream is polled or freed */
  size_t text_bytes;       /* bytes of `text`; may be 0: bytes of a character or stop text may be held back */
  float logprob;           /* log-probability of the token before sampling; NaN: not requested (option logprobs) */
  int32_t finish;          /* MILLRACE_FINISH_NONE, or why the answer ended */
  int32_t last;            /* 1: last event of the request */
  millrace_status status;  /* with MILLRACE_FINISH_ERROR: the error; otherwise MILLRACE_OK */
  const char* message;     /* with MILLRACE_FINISH_ERROR: what went wrong; otherwise "". Valid as `text` is */
  const millrace_token_logprob* top; /* [top_count], most likely first, with option logprobs=K. Valid as `text` is */
  size_t top_count;
  int64_t prompt_tokens;    /* the remaining members: in the last event of the request; otherwise 0 */
  int64_t cached_tokens;    /* prompt tokens that the prefix cache held */
  int64_t generated_tokens; /* over all answers */
  double queue_seconds;
  double prefill_seconds;
  double decode_seconds; /* from the first token to the last */
} millrace_event;

/* Waits for the next event. `stream`: NULL: of any stream of the engine, each in its turn. `engine`: may be NULL if
 * `stream` is not. `timeout_ms`: longest wait in milliseconds; 0: do not wait; -1: no limit. *event: out, if the status
 * is MILLRACE_OK. MILLRACE_TIMEOUT: none arrived in time. MILLRACE_END: the last event of the stream has been returned;
 * with NULL, that of every open stream. An error that ends a request is an event, not a status. */
millrace_status millrace_poll(millrace_engine* engine, millrace_stream* stream, int32_t timeout_ms,
                              millrace_event* event, char** error);

#ifdef __cplusplus
}
#endif

#endif /* MILLRACE_H */
