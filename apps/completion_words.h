// Words that a shell's completion script asks for while the user types. The answer takes some milliseconds: no command
// is declared for it.
//
//     millrace completion --words models TEXT          names of models that begin with TEXT
//     millrace completion --words use COMMAND TEXT     FAMILY=NAME[:key=value,...] of --use of a command
//     millrace completion --words member FAMILY TEXT   NAME[:key=value,...] of a flag such as --evictor
//
// Each word is the whole argument with TEXT at its beginning, one on a line. Unknown kinds print nothing.
#pragma once

#include <string>
#include <vector>

namespace millrace {

// Prints the words and returns true if the arguments of the process ask for them.
bool print_completion_words(const std::vector<std::string>& arguments);

}  // namespace millrace
