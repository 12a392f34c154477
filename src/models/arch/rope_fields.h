// Rotary fields of a config.json, from every place where Transformers 4 and 5 write them: at the top (rope_theta,
// partial_rotary_factor), in `rope_scaling` (4), in `rope_parameters` (5), and in one object per layer type inside
// `rope_parameters` (5). One table lists the fields that are read. A field outside the table is refused by name, since
// it may change the numbers.
#pragma once

#include "models/arch_spec.h"
#include "models/config_reader.h"

namespace millrace {

// Rotates the first `part` of a head's frequencies, each divided by `factor`; the others stand still. The two values of
// a pair have half a head between them, as when all rotate ('proportional'). `part`: 0 to 1.
void rotate_part(RopeSpec& rope, int64_t head_dim, double part, double factor);

// Fills spec.ropes: [0] for the layers that see all keys and, if the file has an object for sliding layers, [1] for the
// sliding ones. Needs spec.head_dim and spec.context. Failures are stored in `config`.
void read_huggingface_ropes(ConfigReader& config, ArchSpec& spec);

// Gives layers with a window spec.ropes[1], if there is one and no layer refers to it yet.
void assign_window_ropes(ArchSpec& spec);

// A number of `rope_parameters` or `rope_scaling`, whichever states it; 0 if neither does. Failures are stored in
// `config`.
double rope_object_number(ConfigReader& config, std::string_view key);

}  // namespace millrace
