// Generators and checkers of the tasks, one file each; builtin.cc lists them. task.h defines the interface.
#pragma once

#include "lab/task.h"

namespace millrace::lab {

LabItem make_needle(LabRandom& random, int64_t length);
LabItem make_multidoc(LabRandom& random, int64_t length);
LabItem make_arithmetic(LabRandom& random, int64_t length);
LabItem make_steps(LabRandom& random, int64_t length);
LabItem make_lists(LabRandom& random, int64_t length);
LabItem make_icl(LabRandom& random, int64_t length);
LabItem make_extract(LabRandom& random, int64_t length);
LabItem make_summary(LabRandom& random, int64_t length);
LabItem make_copy(LabRandom& random, int64_t length);
LabItem make_dictionary(LabRandom& random, int64_t length);
LabItem make_dialogue(LabRandom& random, int64_t length);
LabItem make_smalltalk(LabRandom& random, int64_t length);

double score_steps(const LabItem& item, std::string_view given);
double score_lists(const LabItem& item, std::string_view given);
double score_extract(const LabItem& item, std::string_view given);
double score_dictionary(const LabItem& item, std::string_view given);
double score_summary(const LabItem& item, std::string_view given);
double score_smalltalk(const LabItem& item, std::string_view given);

}  // namespace millrace::lab
