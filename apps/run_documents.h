// Documents before the question of `millrace run`: files of --document, and passages that --retrieve finds.
#pragma once

#include <string>
#include <vector>

#include "prompt/document_prompt.h"
#include "retrieve/retriever.h"
#include "run_flags.h"

namespace millrace {

// Returns the passages of --retrieve; none without it. Errors: those of the index and its model.
Result<std::vector<SearchHit>> find_passages(const RunFlags& flags, const std::string& question);

// Returns the texts of the files, then those of the passages. Errors: those of reading, user (an empty file).
Result<std::vector<std::string>> document_texts(const RunFlags& flags, const std::vector<SearchHit>& passages);

// The start token, the documents' tokens, and those of the question; a document's tokens do not depend on its place.
Result<DocumentPrompt> documents_before(const RunFlags& flags, const LanguageModel& model,
                                        const std::vector<std::string>& texts, const std::string& question);
// A conversation whose messages, an array of {"role", "content"}, end with the question.
Result<DocumentPrompt> documents_in_message(const LanguageModel& model, const std::vector<std::string>& texts,
                                            nlohmann::ordered_json messages);

void print_sources(const std::vector<SearchHit>& passages);  // on stderr

}  // namespace millrace
