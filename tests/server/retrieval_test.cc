// "millrace": {"retrieve": {...}}: passages become documents of the prompt, and the response names them. A key finds
// documents without an owner and its own.
#include <algorithm>
#include <filesystem>

#include "retrieve/named_indexes.h"
#include "server/live_server.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct IndexedTexts {
  fs::path folder = fs::temp_directory_path() / ("millrace_served_index_" + std::to_string(getpid()));

  IndexedTexts() {
    fs::remove_all(folder);
    auto index = DocumentIndex::create(folder, {});
    EXPECT_TRUE(index.ok());
    const auto add = [&](const char* tenant, const char* path, const char* text) {
      EXPECT_TRUE((*index)->add(tenant, path, DocumentKind::plain, text, nullptr).ok());
    };
    add("", "lily.txt", "Lily has a red ball. The ball is in the garden.");
    add("", "tom.txt", "Tom likes to swim in the lake.");
    add("alice", "secret.txt", "The ball of Alice is golden.");
  }
  ~IndexedTexts() { fs::remove_all(folder); }

  std::shared_ptr<const NamedIndexes> open() const {
    const std::vector<std::string> named = {"toys=" + folder.string()};
    const auto none = [](const std::string&) -> Result<std::shared_ptr<const LanguageModel>> {
      return Error::internal("an index of words needs no model");
    };
    auto opened = NamedIndexes::open(named, none, 1);
    EXPECT_TRUE(opened.ok());
    return opened.ok() ? *opened : nullptr;
  }
};

Json asking(const char* index, int k = 1) {
  return {{"prompt", "Where is the red ball? "},
          {"max_tokens", 4},
          {"temperature", 0},
          {"millrace", {{"retrieve", {{"index", index}, {"k", k}}}}}};
}

Response posted(int port, const Json& body, const std::string& headers = "") {
  Client client(port);
  client.post("/v1/completions", body.dump(), headers);
  return client.response();
}

TEST(Retrieval, PassagesAreDocumentsOfThePrompt) {
  const IndexedTexts texts;
  ServiceOptions options;
  options.indexes = texts.open();
  LiveServer live(options);
  const Response answer = posted(live.port(), asking("toys"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json sources = answer.json()["millrace"]["sources"];
  ASSERT_EQ(sources.size(), 1u) << answer.body;
  EXPECT_EQ(sources[0]["path"], "lily.txt");
  EXPECT_EQ(sources[0]["text"], "Lily has a red ball. The ball is in the garden.");
  // A client that sends these documents itself receives the same answer.
  Json plain = asking("toys");
  plain["millrace"] = {{"documents", {"[lily.txt]\nLily has a red ball. The ball is in the garden.\n\n"}}};
  const Response same = posted(live.port(), plain);
  ASSERT_EQ(same.status, 200) << same.body;
  EXPECT_EQ(same.json()["choices"][0]["text"], answer.json()["choices"][0]["text"]);
  EXPECT_EQ(same.json()["usage"]["prompt_tokens"], answer.json()["usage"]["prompt_tokens"]);
}

TEST(Retrieval, KeysFindTheirOwnDocumentsAndSharedOnes) {
  const IndexedTexts texts;
  ServiceOptions options;
  options.indexes = texts.open();
  auto keys = parse_api_keys(R"({"keys": [{"name": "alice", "key": "alice-0123456789"},
                                          {"name": "bob", "key": "bob-0123456789"}]})",
                             "keys");
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  options.keys = *keys;
  LiveServer live(options);
  const auto sources = [&](const std::string& name) {
    const Response answer =
        posted(live.port(), asking("toys", 10), "Authorization: Bearer " + name + "-0123456789\r\n");
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::vector<std::string> out;
    const Json body = answer.json();
    for (const Json& one : body["millrace"]["sources"]) out.push_back(one["path"]);
    std::ranges::sort(out);
    return out;
  };
  EXPECT_EQ(sources("alice"), (std::vector<std::string>{"lily.txt", "secret.txt", "tom.txt"}));
  EXPECT_EQ(sources("bob"), (std::vector<std::string>{"lily.txt", "tom.txt"}));
}

TEST(Retrieval, RefusesWhatItCannotDo) {
  const IndexedTexts texts;
  ServiceOptions options;
  options.indexes = texts.open();
  LiveServer live(options), without;
  for (const auto& [port, body, part] : {std::tuple(live.port(), asking("none"), "this server has: toys"),
                                         std::tuple(without.port(), asking("toys"), "--index NAME=FOLDER"),
                                         std::tuple(live.port(), asking("toys", 0), "millrace.retrieve.k")}) {
    const Response answer = posted(port, body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find(part), std::string::npos) << answer.body;
  }
  Json tokens = asking("toys");
  tokens["prompt"] = {1, 2, 3};
  EXPECT_EQ(posted(live.port(), tokens).status, 400);
}

}  // namespace
}  // namespace millrace
