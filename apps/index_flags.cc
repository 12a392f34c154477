#include "index_flags.h"

#include <fmt/format.h>

#include <filesystem>

#include "hub_model.h"
#include "retrieve/folder_files.h"

namespace millrace {
namespace {

// The name that finds the model again from any folder.
std::string lasting_name(const std::string& name) {
  std::error_code error;
  return std::filesystem::exists(name, error) ? document_name(name) : name;
}

Result<std::unique_ptr<TextVectors>> load_vectors(const std::string& name, int threads) {
  MILLRACE_TRY(auto model, load_named(name, threads));
  return model_text_vectors(std::move(model), threads);
}

Result<IndexSettings> new_settings(const std::string& embedder, const ChunkOptions& chunks, TextVectors* vectors) {
  IndexSettings out;
  out.chunks = chunks;
  if (!vectors) return out;
  out.embedder = lasting_name(embedder);
  out.width = vectors->width();
  MILLRACE_TRY(auto probe, vectors->of_documents(std::vector<std::string>{std::string(kProbeText)}));
  out.probe = std::move(probe.front());
  return out;
}

// Loads the model of an existing index.
Result<std::unique_ptr<TextVectors>> vectors_of(const DocumentIndex& index, const IndexFlags& flags) {
  const std::string& name = flags.model.path.empty() ? index.settings().embedder : flags.model.path;
  auto vectors = load_vectors(name, flags.model.threads);
  if (!vectors.ok() && flags.model.path.empty())
    return Error{vectors.error().kind, fmt::format("index {}: its embedding model: {}; name it with -m", index.folder(),
                                                   vectors.error().message)};
  if (!vectors.ok()) return vectors.error();
  MILLRACE_TRY_VOID(index.check_model(**vectors));
  return vectors;
}

}  // namespace

void IndexFlags::add_to(CLI::App* command) {
  command->add_option("--index", index, "Folder of the index")->required();
  command->add_option("--tenant", tenant, "Owner of the documents; others do not find them");
}

void IndexFlags::add_model_to(CLI::App* command, const std::string& use) {
  command->add_option("-m,--model", model.path, use);
  command->add_option("-t,--threads", model.threads, "Threads; 0: all cores")->check(CLI::Range(0, 1024));
}

Result<std::shared_ptr<const LanguageModel>> load_named(const std::string& name, int threads) {
  ModelFlags flags;
  flags.path = name;
  flags.threads = threads;
  return flags.load();
}

Result<OpenedIndex> open_to_write(const IndexFlags& flags, const ChunkOptions& chunks, bool chunks_given) {
  OpenedIndex out;
  if (!DocumentIndex::exists(flags.index)) {
    if (!flags.model.path.empty()) {
      MILLRACE_TRY(out.vectors, load_vectors(flags.model.path, flags.model.threads));
    }
    MILLRACE_TRY(const IndexSettings made, new_settings(flags.model.path, chunks, out.vectors.get()));
    MILLRACE_TRY(out.index, DocumentIndex::create(flags.index, made));
    return out;
  }
  MILLRACE_TRY(out.index, DocumentIndex::open(flags.index, IndexAccess::write));
  const IndexSettings& made = out.index->settings();
  if (chunks_given && (chunks.max_bytes != made.chunks.max_bytes || chunks.overlap_bytes != made.chunks.overlap_bytes))
    return Error::user(
        fmt::format("index {}: has chunks of {} bytes that repeat {}; create another index for other ones", flags.index,
                    made.chunks.max_bytes, made.chunks.overlap_bytes));
  if (made.width == 0 && !flags.model.path.empty())
    return Error::user(
        fmt::format("index {}: has words only, and no vectors; create another index for them, or leave "
                    "out -m",
                    flags.index));
  if (made.width > 0) {
    MILLRACE_TRY(out.vectors, vectors_of(*out.index, flags));
  }
  return out;
}

Result<OpenedIndex> open_to_read(const IndexFlags& flags, SearchMode mode) {
  OpenedIndex out;
  MILLRACE_TRY(out.index, DocumentIndex::open(flags.index, IndexAccess::read));
  if (out.index->settings().width > 0 && mode != SearchMode::words) {
    MILLRACE_TRY(out.vectors, vectors_of(*out.index, flags));
  }
  return out;
}

}  // namespace millrace
