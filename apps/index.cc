// millrace index add | search | rm | stats: documents that questions find.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "base/ordered_json.h"
#include "command.h"
#include "hub_model.h"
#include "index_flags.h"
#include "input.h"
#include "interrupt.h"
#include "progress.h"
#include "retrieve/chunk_ranker.h"
#include "retrieve/folder_files.h"
#include "retrieve/passages_json.h"
#include "table_room.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

constexpr const char* kIndexExamples = R"(Examples:
  millrace index add docs --index notes.index -m all-MiniLM-L6-v2     read a folder
  millrace index search "How do I install it?" --index notes.index    find the passages that answer
  millrace index add docs --index notes.index                         read what has changed
  millrace index stats --index notes.index                            what the index has

An index is a folder. A document is in it completely or not at all, so adding may be interrupted at any time and
continued by the same command.)";

constexpr const char* kAddExamples = R"(Examples:
  millrace index add docs --index notes.index -m all-MiniLM-L6-v2   text, Markdown and HTML of a folder, with vectors
  millrace index add a.txt b.html --index words.index               without a model: found by their words alone (BM25)
  millrace index add docs --index notes.index                       again: reads files that changed, forgets those gone

The embedding model and the size of chunks belong to the index: the first command decides, later ones use them.)";

constexpr const char* kIndexSearchExamples = R"(Examples:
  millrace index search "Who was right?" --index notes.index                   by vectors and words, the ranks fused
  millrace index search "error E1234" --index notes.index --mode text          by words alone (BM25)
  millrace index search "Who was right?" --index notes.index --json -k 3       for programs
  millrace index search "Who?" --index notes.index --rerank bge-reranker-v2-m3 sort the candidates with a reranker)";

constexpr const char* kRmExamples = R"(Examples:
  millrace index rm docs/old.md --index notes.index   a document
  millrace index rm docs --index notes.index          all documents of a folder)";

constexpr const char* kIndexStatsExamples = R"(Examples:
  millrace index stats --index notes.index           documents, chunks, sizes, and the embedding model
  millrace index stats --index notes.index --check   also compare the parts of the index with each other)";

struct IndexAddFlags : IndexFlags {
  std::vector<std::string> paths;
  ChunkOptions chunks;
  bool chunks_given = false;
  int64_t max_megabytes = 0;
  bool json = false;
};

struct IndexSearchFlags : IndexFlags {
  std::string question, mode = "hybrid", rerank;
  int64_t k = 10, effort = 100;
  bool exact = false, json = false;
};

struct IndexShortFlags : IndexFlags {
  std::vector<std::string> paths;
  bool json = false, check = false;
};

struct AddCounts {
  int64_t added = 0, replaced = 0, unchanged = 0, removed = 0, skipped = 0;
  bool interrupted = false;
};

// Removes documents that are below `folder` and not among `files`.
Result<void> forget_gone(DocumentIndex& index, const std::string& tenant, const std::string& folder,
                         const std::vector<FoundFile>& files, AddCounts& counts) {
  const std::string below = document_name(folder) + "/";
  MILLRACE_TRY(const auto documents, index.documents(tenant));
  for (const IndexedDocument& one : documents) {
    if (!one.path.starts_with(below)) continue;
    if (std::ranges::binary_search(files, one.path, {}, &FoundFile::path)) continue;
    MILLRACE_TRY_VOID(index.remove(tenant, one.path));
    ++counts.removed;
  }
  return {};
}

// Adds one file. One that was found in a folder and cannot be read as text is passed over, with a note.
Result<void> add_file(DocumentIndex& index, TextVectors* vectors, const std::string& tenant, const FoundFile& file,
                      bool named, AddCounts& counts) {
  const auto pass_over = [&](const Error& why) -> Result<void> {
    if (named) return why;
    const bool says = why.message.starts_with(file.path);
    fmt::print(stderr, "millrace: note: passed over: {}{}\n", says ? "" : file.path + ": ", why.message);
    ++counts.skipped;
    return {};
  };
  const auto bytes = read_document(file.path);
  if (!bytes.ok()) return pass_over(bytes.error());
  const auto outcome = index.add(tenant, file.path, file.kind, *bytes, vectors);
  if (!outcome.ok() && outcome.error().kind == ErrorKind::unsupported) return pass_over(outcome.error());
  if (!outcome.ok()) return outcome.error();
  ++(*outcome == AddOutcome::added      ? counts.added
     : *outcome == AddOutcome::replaced ? counts.replaced
                                        : counts.unchanged);
  return {};
}

Result<void> add_files(DocumentIndex& index, TextVectors* vectors, const IndexAddFlags& flags, AddCounts& counts) {
  std::vector<FoundFile> all;
  std::set<std::string> named;
  for (const std::string& path : flags.paths) {
    MILLRACE_TRY(FoundFiles found, find_files(path));
    counts.skipped += found.skipped;
    if (std::filesystem::is_directory(path)) {
      MILLRACE_TRY_VOID(forget_gone(index, flags.tenant, path, found.files, counts));
    } else {
      for (const FoundFile& file : found.files) named.insert(file.path);
    }
    all.insert(all.end(), found.files.begin(), found.files.end());
  }
  ProgressBar bar("indexing");
  for (size_t i = 0; i < all.size() && !interrupted(); ++i) {
    bar.update(static_cast<double>(i) / static_cast<double>(all.size()), fmt::format("{} of {}", i, all.size()));
    MILLRACE_TRY_VOID(add_file(index, vectors, flags.tenant, all[i], named.contains(all[i].path), counts));
  }
  counts.interrupted = interrupted();
  return {};
}

Result<int> add(const IndexAddFlags& flags) {
  const auto began = std::chrono::steady_clock::now();
  MILLRACE_TRY(auto opened, open_to_write(flags, flags.chunks, flags.chunks_given));
  DocumentIndex& index = *opened.index;
  if (flags.max_megabytes > 0) MILLRACE_TRY_VOID(index.limit_bytes(flags.max_megabytes << 20));
  catch_interrupts();
  AddCounts counts;
  const auto done = add_files(index, opened.vectors.get(), flags, counts);
  const auto saved = index.save();  // what was stored before an error stays
  if (!done.ok()) return done.error();
  if (!saved.ok()) return saved.error();
  MILLRACE_TRY(const IndexStats stats, index.stats());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (flags.json)
    print_json_line({{"added", counts.added},
                     {"replaced", counts.replaced},
                     {"unchanged", counts.unchanged},
                     {"removed", counts.removed},
                     {"skipped", counts.skipped},
                     {"documents", stats.documents},
                     {"chunks", stats.chunks},
                     {"seconds", seconds}});
  else
    fmt::print("{} added, {} replaced, {} unchanged, {} removed{}: {} documents, {} chunks, {:.1f} s\n", counts.added,
               counts.replaced, counts.unchanged, counts.removed,
               counts.skipped > 0 ? fmt::format(", {} of other kinds skipped", counts.skipped) : "", stats.documents,
               stats.chunks, seconds);
  return counts.interrupted ? 130 : 0;
}

void print_hits(const std::vector<SearchHit>& hits) {
  const size_t columns = terminal_columns();
  if (hits.empty()) fmt::print("nothing was found\n");
  for (size_t i = 0; i < hits.size(); ++i) {
    const IndexedChunk& chunk = hits[i].chunk;
    fmt::print("{}{}. {}{}  ({:.4f})\n", i > 0 ? "\n" : "", i + 1, chunk.path,
               chunk.heading.empty() ? "" : "  " + chunk.heading, hits[i].score);
    std::string text = chunk.text;
    std::ranges::replace(text, '\n', ' ');
    print_wrapped(text, columns, 3);
  }
}

Result<int> search(const IndexSearchFlags& flags) {
  const auto mode = find_search_mode(flags.mode);
  if (!mode) return Error::user(fmt::format("--mode: must be hybrid, vector or text, not {}", flags.mode));
  MILLRACE_TRY(auto opened, open_to_read(flags, *mode));
  constexpr int64_t kRanked = 4;  // candidates of a reranker, times k
  SearchRequest request;
  request.question = flags.question;
  request.tenants = {flags.tenant};
  request.mode = *mode;
  request.k = flags.rerank.empty() ? flags.k : std::min(kMaxSearchResults, flags.k * kRanked);
  request.effort = flags.effort;
  request.exact = flags.exact;
  if (opened.vectors) {
    MILLRACE_TRY(request.vector, opened.vectors->of_question(flags.question));
  }
  MILLRACE_TRY(auto hits, opened.index->search(request));
  if (!flags.rerank.empty()) {
    MILLRACE_TRY(const auto model, load_named(flags.rerank, flags.model.threads));
    MILLRACE_TRY(const auto ranker, ChunkRanker::create(model, flags.model.threads));
    MILLRACE_TRY_VOID(ranker->rank(flags.question, flags.k, hits));
  }
  if (!flags.json) {
    print_hits(hits);
    return 0;
  }
  print_json_line({{"question", flags.question}, {"mode", flags.mode}, {"results", passages_json(hits)}});
  return 0;
}

Result<int> remove(const IndexShortFlags& flags) {
  MILLRACE_TRY(auto index, DocumentIndex::open(flags.index, IndexAccess::write));
  MILLRACE_TRY(const auto documents, index->documents(flags.tenant));
  int64_t removed = 0;
  for (const std::string& path : flags.paths) {
    const std::string name = document_name(path);
    int64_t found = 0;
    for (const IndexedDocument& one : documents) {
      if (one.path != name && one.path != path && !one.path.starts_with(name + "/")) continue;
      MILLRACE_TRY(const bool gone, index->remove(flags.tenant, one.path));
      found += gone ? 1 : 0;
    }
    if (found == 0)
      return Error::user(
          fmt::format("{}: the index {} has no such document, and no document below it", path, flags.index));
    removed += found;
  }
  MILLRACE_TRY_VOID(index->save());
  if (flags.json)
    print_json_line({{"removed", removed}});
  else
    fmt::print("{} removed\n", removed);
  return 0;
}

Result<int> print_stats(const IndexShortFlags& flags) {
  MILLRACE_TRY(const auto index, DocumentIndex::open(flags.index, IndexAccess::read));
  if (flags.check) MILLRACE_TRY_VOID(index->check());
  MILLRACE_TRY(const IndexStats stats, index->stats());
  const IndexSettings& made = stats.settings;
  if (flags.json) {
    nlohmann::ordered_json json = {{"documents", stats.documents},
                                   {"chunks", stats.chunks},
                                   {"vectors", stats.vectors},
                                   {"tenants", stats.tenants},
                                   {"text_bytes", stats.text_bytes},
                                   {"store_bytes", stats.store_bytes},
                                   {"embedder", made.embedder},
                                   {"width", made.width},
                                   {"chunk_bytes", made.chunks.max_bytes},
                                   {"chunk_overlap", made.chunks.overlap_bytes}};
    if (flags.check) json["rebuilt_graphs"] = index->rebuilt_graphs();
    print_json_line(json);
    return 0;
  }
  const size_t columns = terminal_columns();
  print_fact("documents", fmt::format("{} ({:.1f} MB)", stats.documents, static_cast<double>(stats.text_bytes) * 1e-6),
             columns);
  print_fact("chunks", fmt::format("{} of at most {} bytes", stats.chunks, made.chunks.max_bytes), columns);
  print_fact("vectors",
             made.width == 0 ? "none: documents are found by their words"
                             : fmt::format("{} of {} values, by {}", stats.vectors, made.width, made.embedder),
             columns);
  print_fact("tenants", fmt::format("{}", stats.tenants), columns);
  print_fact("store", fmt::format("{:.1f} MB", static_cast<double>(stats.store_bytes) * 1e-6), columns);
  if (flags.check) print_fact("check", "the parts of the index agree", columns);
  return 0;
}

void add_add(CLI::App& index) {
  auto flags = std::make_shared<IndexAddFlags>();
  CLI::App* command =
      add_command(index, "add", "Read files and folders into an index", kAddExamples, [=] { return add(*flags); });
  command->add_option("path", flags->paths, "Files and folders: .txt, .md, .html ...")->required();
  flags->add_to(command);
  flags->add_model_to(command, "Embedding model of a new index; without one, documents are found by their words");
  const auto note = [=](const std::string&) { flags->chunks_given = true; };
  command->add_option("--chunk-bytes", flags->chunks.max_bytes, "Size of a passage of a new index, at most")
      ->each(note)
      ->capture_default_str()
      ->check(CLI::Range(kMinChunkBytes, kMaxChunkBytes));
  command
      ->add_option("--chunk-overlap", flags->chunks.overlap_bytes,
                   "Bytes, at most, of whole paragraphs that a passage repeats of the one before")
      ->each(note)
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, kMaxChunkBytes / 2));
  command->add_option("--max-size", flags->max_megabytes, "Do not let the store grow beyond this many MiB; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  command->add_flag("--json", flags->json, "Print {\"added\": ...}");
}

void add_search(CLI::App& index) {
  auto flags = std::make_shared<IndexSearchFlags>();
  CLI::App* command = add_command(index, "search", "Find the passages that a question is about", kIndexSearchExamples,
                                  [=] { return search(*flags); });
  command->add_option("question", flags->question, "The question, or words")->required();
  flags->add_to(command);
  flags->add_model_to(command, "Embedding model; default: the path that the index was created with");
  command->add_option("--mode", flags->mode, "hybrid: ranks of both, fused; vector: by meaning; text: by words (BM25)")
      ->capture_default_str()
      ->check(CLI::IsMember({"hybrid", "vector", "text"}));
  command->add_option("-k", flags->k, "Passages to find")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, kMaxSearchResults));
  command->add_option("--rerank", flags->rerank, "Sort 4 k candidates with this model, which must have a ranking head");
  command
      ->add_option("--effort", flags->effort, "Vectors that the search keeps in view: more is slower, and finds more")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, kMaxSearchEffort));
  command->add_flag("--exact", flags->exact, "Compare the question with every vector");
  command->add_flag("--json", flags->json, "Print {\"results\": [...]}");
}

}  // namespace

void add_index_command(CLI::App& app) {
  CLI::App* index = app.add_subcommand("index", "Find passages of your documents");
  index->footer(kIndexExamples);
  index->fallthrough();
  index->require_subcommand(1);
  add_add(*index);
  add_search(*index);
  auto rm = std::make_shared<IndexShortFlags>();
  CLI::App* command =
      add_command(*index, "rm", "Remove documents from an index", kRmExamples, [=] { return remove(*rm); });
  command->add_option("path", rm->paths, "Files or folders, as they were added")->required();
  rm->add_to(command);
  command->add_flag("--json", rm->json, "Print {\"removed\": ...}");
  auto stats = std::make_shared<IndexShortFlags>();
  command = add_command(*index, "stats", "Describe an index", kIndexStatsExamples, [=] { return print_stats(*stats); });
  stats->add_to(command);
  command->add_flag("--check", stats->check, "Compare the parts of the index with each other");
  command->add_flag("--json", stats->json, "Print JSON");
}

}  // namespace millrace
