// What the engine of an answer does differently from a plain one, for every request: its KV format, its attention
// pattern, its evictor and how it computes documents, as they were given.
#pragma once

#include "millrace/options.h"
#include "millrace/request.h"
#include "server/json.h"

namespace millrace {

// {"kv_format": "kivi:bits=2", "attention": "bigbird", "evictor": "h2o:budget=512", "context": "kvlink"}, of these what
// was chosen; {} for a plain engine. The context is named where the request has documents. A request's own evictor or
// context is in the engine's place. Of files and folders the name only.
Json engine_choices(const EngineOptions& options, const Request& request);

}  // namespace millrace
