// What the engine of an answer does differently from a plain one, for every request: its KV format, its attention
// pattern and its evictor, as they were given.
#pragma once

#include "millrace/options.h"
#include "server/json.h"

namespace millrace {

// {"kv_format": "kivi:bits=2", "attention": "bigbird", "evictor": "h2o:budget=512"}, of these what was chosen; {} for a
// plain engine. A request with an evictor of its own, `own_evictor`, has that one instead. Of files the name only.
Json engine_choices(const EngineOptions& options, bool own_evictor);

}  // namespace millrace
