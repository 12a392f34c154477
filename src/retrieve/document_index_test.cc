// The index: incremental additions, tenants, interruptions, damaged files, and the search beside brute force.
#include "retrieve/document_index.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "retrieve/rank_fusion.h"
#include "retrieve/retrieve_test.h"

namespace millrace {
namespace {

constexpr DocumentKind kPlain = DocumentKind::plain;

std::unique_ptr<DocumentIndex> new_index(const std::string& folder, TextVectors& vectors) {
  return got(DocumentIndex::create(folder, settings_of(vectors)));
}

std::vector<SearchHit> find(const DocumentIndex& index, TextVectors& vectors, const std::string& question,
                            SearchMode mode, int64_t k = 10, std::vector<std::string> tenants = {""},
                            bool exact = false) {
  SearchRequest request;
  request.question = question;
  request.vector = got(vectors.of_question(question));
  request.mode = mode;
  request.k = k;
  request.tenants = std::move(tenants);
  request.exact = exact;
  return got(index.search(request));
}

std::vector<std::string> paths_of(const std::vector<SearchHit>& hits) {
  std::vector<std::string> out;
  for (const SearchHit& hit : hits) out.push_back(hit.chunk.path);
  return out;
}

TEST(RankFusion, SumsReciprocalRanks) {
  const std::vector<std::vector<RankedChunk>> lists = {{{7, 0.9}, {3, 0.8}, {5, 0.1}}, {{3, 12}, {9, 4}}};
  const auto fused = fuse_ranks(lists);
  ASSERT_EQ(fused.size(), 4u);
  EXPECT_EQ(fused[0].id, 3);
  EXPECT_DOUBLE_EQ(fused[0].score, 1.0 / 62 + 1.0 / 61);
  EXPECT_EQ(fused[1].id, 7);
  EXPECT_EQ(fused[2].id, 9);  // second of its list, as chunk 3 of the first
  EXPECT_EQ(fused[3].id, 5);
}

TEST(IndexStore, QuestionsBecomeQuotedWords) {
  EXPECT_EQ(words_query("Who said \"NEAR(a b)\" * -x?"), "\"Who\" OR \"said\" OR \"NEAR\" OR \"a\" OR \"b\" OR \"x\"");
  EXPECT_EQ(words_query(" ?! "), "");
}

TEST(DocumentIndex, FindsByWordsByVectorsAndByBoth) {
  IndexFolder folder;
  HashedWords vectors;
  const auto index = new_index(folder.path(), vectors);
  for (const auto& [path, text] : {std::pair("mill.md", "# Mills\nWater turns the wheel of the mill."),
                                   std::pair("cat.md", "# Cats\nThe cat sleeps on the mat."),
                                   std::pair("sea.md", "# Sea\nWaves of water reach the shore.")})
    EXPECT_EQ(got(index->add("", path, DocumentKind::markdown, text, &vectors)), AddOutcome::added);
  for (const SearchMode mode : {SearchMode::words, SearchMode::vector, SearchMode::hybrid}) {
    const auto hits = find(*index, vectors, "wheel of the mill", mode);
    ASSERT_FALSE(hits.empty());
    EXPECT_EQ(hits[0].chunk.path, "mill.md");
    EXPECT_EQ(hits[0].chunk.heading, "Mills");
    EXPECT_EQ(hits[0].chunk.text, "# Mills\nWater turns the wheel of the mill.");
    for (size_t i = 1; i < hits.size(); ++i) EXPECT_LE(hits[i].score, hits[i - 1].score);
  }
  EXPECT_EQ(paths_of(find(*index, vectors, "water", SearchMode::words)).size(), 2u);
  EXPECT_TRUE(find(*index, vectors, "\"unknown\" OR", SearchMode::words).empty());
  EXPECT_TRUE(find(*index, vectors, "???", SearchMode::words).empty());
  const IndexStats stats = got(index->stats());
  EXPECT_EQ(stats.documents, 3);
  EXPECT_EQ(stats.chunks, 3);
  EXPECT_EQ(stats.vectors, 3);
  EXPECT_TRUE(index->check().ok());
}

TEST(DocumentIndex, ComputesOnlyWhatChangedAndForgetsWhatIsGone) {
  IndexFolder folder;
  HashedWords vectors;
  const auto index = new_index(folder.path(), vectors);
  EXPECT_EQ(got(index->add("", "a", kPlain, "old words here", &vectors)), AddOutcome::added);
  const int64_t computed = vectors.computed;
  EXPECT_EQ(got(index->add("", "a", kPlain, "old words here", &vectors)), AddOutcome::unchanged);
  EXPECT_EQ(vectors.computed, computed);
  EXPECT_EQ(got(index->add("", "a", kPlain, "new words", &vectors)), AddOutcome::replaced);
  EXPECT_TRUE(find(*index, vectors, "old", SearchMode::words).empty());
  EXPECT_EQ(find(*index, vectors, "new", SearchMode::words).size(), 1u);
  EXPECT_EQ(find(*index, vectors, "words", SearchMode::vector).size(), 1u);
  EXPECT_TRUE(index->check().ok());
  EXPECT_TRUE(got(index->remove("", "a")));
  EXPECT_FALSE(got(index->remove("", "a")));
  EXPECT_FALSE(got(index->remove("nobody", "a")));
  EXPECT_TRUE(find(*index, vectors, "new", SearchMode::hybrid).empty());
  EXPECT_TRUE(index->check().ok());
  // A document that cannot be read leaves the older one.
  EXPECT_TRUE(index->add("", "b", kPlain, "first", &vectors).ok());
  EXPECT_FALSE(index->add("", "b", kPlain, std::string_view("\0", 1), &vectors).ok());
  EXPECT_EQ(find(*index, vectors, "first", SearchMode::words).size(), 1u);
}

TEST(DocumentIndex, TenantsNeverSeeEachOther) {
  IndexFolder folder;
  HashedWords vectors;
  const auto index = new_index(folder.path(), vectors);
  std::mt19937_64 random(1);
  EXPECT_TRUE(index->add("alice", "a", kPlain, "the secret of alice is blue", &vectors).ok());
  EXPECT_TRUE(index->add("alice", "a2", kPlain, "alice also likes the blue sea", &vectors).ok());
  const auto alone = find(*index, vectors, "secret blue", SearchMode::words, 10, {"alice"});
  EXPECT_TRUE(index->add("bob", "a", kPlain, "the secret of bob is red", &vectors).ok());
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(index->add("bob", fmt::format("b{}", i), kPlain, random_text(random, 20) + " secret", &vectors).ok());
  for (const SearchMode mode : {SearchMode::words, SearchMode::vector, SearchMode::hybrid}) {
    for (const SearchHit& hit : find(*index, vectors, "secret", mode, 100, {"alice"}))
      EXPECT_EQ(hit.chunk.text.find("bob"), std::string::npos);
    EXPECT_LE(find(*index, vectors, "secret", mode, 100, {"alice"}).size(), 2u);
    EXPECT_TRUE(find(*index, vectors, "secret", mode, 100, {""}).empty());
    EXPECT_EQ(find(*index, vectors, "secret", mode, 100, {"bob"}).size(), 51u);
  }
  EXPECT_EQ(find(*index, vectors, "secret", SearchMode::words, 100, {"alice", "bob", "alice"}).size(), 52u);
  // Scores are of the tenant's own words: another tenant's documents do not change them.
  const auto later = find(*index, vectors, "secret blue", SearchMode::words, 10, {"alice"});
  ASSERT_EQ(later.size(), alone.size());
  for (size_t i = 0; i < later.size(); ++i) EXPECT_EQ(later[i].score, alone[i].score);
  EXPECT_TRUE(got(index->remove("alice", "a")));
  EXPECT_EQ(find(*index, vectors, "secret", SearchMode::words, 100, {"bob"}).size(), 51u);
}

TEST(DocumentIndex, GraphFindsWhatBruteForceFinds) {
  IndexFolder folder;
  HashedWords vectors;
  const auto index = new_index(folder.path(), vectors);
  std::mt19937_64 random(2);
  for (int i = 0; i < 600; ++i)
    ASSERT_TRUE(index->add("", fmt::format("{:04}", i), kPlain, random_text(random, 150), &vectors).ok());
  ASSERT_GE(got(index->stats()).chunks, 2000);
  int64_t same = 0, wanted = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string question = random_text(random, 8);
    const auto exact = find(*index, vectors, question, SearchMode::vector, 10, {""}, true);
    const auto found = find(*index, vectors, question, SearchMode::vector, 10, {""});
    std::set<int64_t> ids;
    for (const SearchHit& hit : exact) ids.insert(hit.chunk.id);
    for (const SearchHit& hit : found) same += static_cast<int64_t>(ids.count(hit.chunk.id));
    wanted += std::ssize(exact);
  }
  EXPECT_EQ(wanted, 500);
  EXPECT_GE(same, 475);  // recall@10 of 0.95
}

TEST(DocumentIndex, RebuildsAGraphThatIsMissingDamagedOrOld) {
  IndexFolder folder;
  HashedWords vectors;
  std::mt19937_64 random(3);
  {
    const auto index = new_index(folder.path(), vectors);
    for (int i = 0; i < 30; ++i)
      ASSERT_TRUE(index->add("", fmt::format("{:02}", i), kPlain, random_text(random, 60), &vectors).ok());
    ASSERT_TRUE(index->save().ok());
  }
  const std::string graph = folder.path() + "/vectors-1.hnsw", question = random_text(random, 8);
  const auto answer = [&] {
    const auto index = got(DocumentIndex::open(folder.path(), IndexAccess::read));
    EXPECT_TRUE(index->check().ok());
    auto hits = find(*index, vectors, question, SearchMode::vector);
    return std::pair(paths_of(hits), index->rebuilt_graphs());
  };
  const auto whole = answer();
  EXPECT_EQ(whole.second, 0);
  const auto old_graph = folder.path() + "/old";
  std::filesystem::copy_file(graph, old_graph);
  {
    std::fstream file(graph, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(500);
    file << "damage";
  }
  EXPECT_EQ(answer(), std::pair(whole.first, int64_t{1}));
  std::filesystem::remove(graph);
  EXPECT_EQ(answer(), std::pair(whole.first, int64_t{1}));
  // A writer that ended before it saved: the graph's file is older than the store.
  std::filesystem::copy_file(old_graph, graph);
  {
    const auto index = got(DocumentIndex::open(folder.path(), IndexAccess::write));
    EXPECT_TRUE(got(index->remove("", "03")));
    EXPECT_TRUE(index->add("", "99", kPlain, question, &vectors).ok());
  }
  const auto later = answer();
  EXPECT_EQ(later.second, 0);
  EXPECT_EQ(later.first.front(), "99");
  EXPECT_EQ(std::ranges::count(later.first, "03"), 0);
}

TEST(DocumentIndex, HasOneWriterAndAnyReaders) {
  IndexFolder folder;
  HashedWords vectors;
  const auto writer = new_index(folder.path(), vectors);
  EXPECT_TRUE(writer->add("", "a", kPlain, "first text", &vectors).ok());
  const auto reader = got(DocumentIndex::open(folder.path(), IndexAccess::read));
  EXPECT_EQ(find(*reader, vectors, "text", SearchMode::hybrid).size(), 1u);
  const auto second = DocumentIndex::open(folder.path(), IndexAccess::write);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::resource);
  EXPECT_NE(second.error().message.find(folder.path()), std::string::npos);
  EXPECT_TRUE(writer->add("", "b", kPlain, "second text", &vectors).ok());  // while the reader has the index open
  EXPECT_EQ(find(*reader, vectors, "text", SearchMode::hybrid).size(), 2u);
  EXPECT_EQ(find(*reader, vectors, "text", SearchMode::vector).size(), 2u);
}

TEST(DocumentIndex, RefusesOtherModelsAndOtherFiles) {
  IndexFolder folder;
  HashedWords vectors, other(48, 1), narrow(16);
  EXPECT_FALSE(DocumentIndex::open(folder.path(), IndexAccess::read).ok());
  {
    const auto index = new_index(folder.path(), vectors);
    EXPECT_TRUE(index->check_model(vectors).ok());
    EXPECT_FALSE(index->check_model(other).ok());
    EXPECT_FALSE(index->check_model(narrow).ok());
    SearchRequest request;
    request.question = "x";
    request.vector.assign(3, 0.5f);
    EXPECT_FALSE(index->search(request).ok());
    request.vector = got(vectors.of_question("x"));
    request.k = 0;
    EXPECT_FALSE(index->search(request).ok());
    request.k = kMaxSearchResults + 1;
    EXPECT_FALSE(index->search(request).ok());
  }
  EXPECT_FALSE(DocumentIndex::create(folder.path(), settings_of(vectors)).ok());
  std::ofstream(folder.path() + "/index.sqlite", std::ios::binary | std::ios::trunc) << std::string(8192, 'x');
  const auto damaged = DocumentIndex::open(folder.path(), IndexAccess::read);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().kind, ErrorKind::corrupt);
}

TEST(DocumentIndex, FullDiskLeavesWhatWasStored) {
  IndexFolder folder;
  HashedWords vectors;
  const auto index = new_index(folder.path(), vectors);
  ASSERT_TRUE(index->limit_bytes(400 << 10).ok());
  std::mt19937_64 random(4);
  int64_t stored = 0;
  std::optional<Error> full;
  for (int i = 0; i < 2000 && !full; ++i) {
    const auto added = index->add("", fmt::format("{:04}", i), kPlain, random_text(random, 100), &vectors);
    if (added.ok())
      ++stored;
    else
      full = added.error();
  }
  ASSERT_TRUE(full);
  EXPECT_EQ(full->kind, ErrorKind::resource);
  EXPECT_GT(stored, 10);
  EXPECT_EQ(got(index->stats()).documents, stored);
  EXPECT_TRUE(index->check().ok());
  ASSERT_TRUE(index->limit_bytes(0).ok());
  EXPECT_TRUE(index->add("", "more", kPlain, random_text(random, 100), &vectors).ok());
  EXPECT_TRUE(index->check().ok());
}

// What an index answers and holds, without its identifiers.
std::string content_of(const std::string& folder, TextVectors& vectors) {
  const auto index = got(DocumentIndex::open(folder, IndexAccess::read));
  EXPECT_TRUE(index->check().ok());
  std::string out;
  for (const IndexedDocument& one : got(index->documents("")))
    out += fmt::format("{} {} {} {}\n", one.path, one.hash, one.bytes, one.chunks);
  for (const std::string question : {"w1 w5 w30", "w100 w200", "w7"})
    for (const SearchHit& hit : find(*index, vectors, question, SearchMode::vector, 20, {""}, true))
      out += fmt::format("{} {} {} {}\n", hit.chunk.path, hit.chunk.ordinal, hit.score, hit.chunk.text);
  return out;
}

std::vector<std::string> many_texts() {
  std::mt19937_64 random(5);
  std::vector<std::string> out;
  for (int i = 0; i < 120; ++i) out.push_back(random_text(random, 120));
  return out;
}

Result<void> add_all(const std::string& folder, TextVectors& vectors) {
  const bool exists = DocumentIndex::exists(folder);
  MILLRACE_TRY(const auto index, exists ? DocumentIndex::open(folder, IndexAccess::write)
                                        : DocumentIndex::create(folder, settings_of(vectors)));
  const auto texts = many_texts();
  for (size_t i = 0; i < texts.size(); ++i) {
    MILLRACE_TRY(const auto outcome, index->add("", fmt::format("{:04}", i), kPlain, texts[i], &vectors));
    EXPECT_NE(outcome, AddOutcome::replaced);
  }
  return index->save();
}

TEST(DocumentIndex, KilledAtAnyTimeLosesNothing) {
  HashedWords vectors;
  IndexFolder whole, killed;
  ASSERT_TRUE(add_all(whole.path(), vectors).ok());
  std::mt19937_64 random(6);
  int interrupted = 0;
  int64_t documents = 0;
  for (int round = 0; round < 40; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(add_all(killed.path(), vectors).ok() ? 0 : 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
    } else {
      ++interrupted;
    }
    if (!DocumentIndex::exists(killed.path())) continue;
    const auto index = got(DocumentIndex::open(killed.path(), IndexAccess::read));
    EXPECT_TRUE(index->check().ok());
    const int64_t now = got(index->stats()).documents;
    EXPECT_GE(now, documents);  // what was stored stays
    documents = now;
  }
  EXPECT_GT(interrupted, 0);
  ASSERT_TRUE(add_all(killed.path(), vectors).ok());
  EXPECT_EQ(content_of(killed.path(), vectors), content_of(whole.path(), vectors));
}

}  // namespace
}  // namespace millrace
