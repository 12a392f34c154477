#include "run_documents.h"

#include <fmt/format.h>

#include "index_flags.h"
#include "input.h"
#include "prompt/chat_prompt.h"

namespace millrace {

Result<std::vector<SearchHit>> find_passages(const RunFlags& flags, const std::string& question) {
  if (flags.retrieve.empty()) return std::vector<SearchHit>();
  const auto mode = find_search_mode(flags.retrieve_mode);
  if (!mode)
    return Error::user(fmt::format("--retrieve-mode: must be hybrid, vector or text, not {}", flags.retrieve_mode));
  MILLRACE_TRY(auto index, DocumentIndex::open(flags.retrieve, IndexAccess::read));
  const int threads = flags.model.threads;
  const auto load = [&](const std::string& name) { return load_named(name, threads); };
  MILLRACE_TRY(const auto retriever, Retriever::create(std::move(index), "", load, threads));
  RetrievalRequest request;
  request.question = question;
  request.tenants = {flags.retrieve_tenant};
  request.mode = *mode;
  request.k = flags.retrieved;
  return retriever->find(request);
}

Result<std::vector<std::string>> document_texts(const RunFlags& flags, const std::vector<SearchHit>& passages) {
  std::vector<std::string> out;
  for (const std::string& path : flags.documents) {
    MILLRACE_TRY(out.emplace_back(), read_text_file(path));
    if (out.back().empty()) return Error::user(fmt::format("document {}: is empty", path));
  }
  for (const SearchHit& one : passages) out.push_back(passage_text(one));
  return out;
}

Result<DocumentPrompt> documents_before(const RunFlags& flags, const LanguageModel& model,
                                        const std::vector<std::string>& texts, const std::string& question) {
  DocumentPrompt prompt;
  if (!flags.no_special) {
    MILLRACE_TRY(prompt.tokens, model.encode("", true));
  }
  std::vector<std::vector<TokenId>> documents;
  for (const std::string& text : texts) {
    MILLRACE_TRY(documents.emplace_back(), model.encode(text, false));
    if (documents.back().empty()) return Error::user("a document has no tokens");
  }
  prompt.add_documents(documents);
  MILLRACE_TRY(const auto ids, model.encode(question, false));
  if (ids.empty()) return Error::user("prompt: is empty; documents need a question");
  prompt.add(ids);
  return prompt;
}

Result<DocumentPrompt> documents_in_message(const LanguageModel& model, const std::vector<std::string>& texts,
                                            nlohmann::ordered_json messages) {
  MILLRACE_TRY_VOID(mark_documents(messages));
  MILLRACE_TRY(const std::string text, chat_text(model, messages, true));
  std::vector<std::vector<TokenId>> documents;
  for (const std::string& one : texts) {
    MILLRACE_TRY(documents.emplace_back(), encode_within(model, one));
    if (documents.back().empty()) return Error::user("a document has no tokens");
  }
  return marked_prompt(model, text, documents);
}

void print_sources(const std::vector<SearchHit>& passages) {
  for (size_t i = 0; i < passages.size(); ++i) {
    const IndexedChunk& chunk = passages[i].chunk;
    fmt::print(stderr, "source {}: {}{}\n", i + 1, chunk.path, chunk.heading.empty() ? "" : ": " + chunk.heading);
  }
}

}  // namespace millrace
