#include "hub/model_store.h"

#include <gtest/gtest.h>

#include <fstream>

namespace millrace {
namespace {

namespace fs = std::filesystem;

class ModelStoreTest : public ::testing::Test {
 protected:
  ModelStoreTest() {
    std::string pattern = (fs::temp_directory_path() / "millrace-store-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    store_.emplace(folder_ / "store", (folder_ / "hub").string());
  }
  ~ModelStoreTest() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const StoredModel& model : store_->list()) out.push_back(model.name);
    return out;
  }
  // A download of owner/name.
  void cache(const std::string& name, const std::string& blob, const std::string& text) {
    const fs::path repository = folder_ / "hub/models--owner--name";
    file("hub/models--owner--name/blobs/" + blob, text);
    file("hub/models--owner--name/refs/main", std::string(40, 'c'));
    fs::create_directories(repository / "snapshots" / std::string(40, 'c'));
    fs::create_symlink("../../blobs/" + blob, repository / "snapshots" / std::string(40, 'c') / name);
  }

  fs::path folder_;
  std::optional<ModelStore> store_;
};

TEST_F(ModelStoreTest, NamesShareFilesUntilTheLastIsRemoved) {
  const ModelRecipe recipe{.files = {file("m.gguf", "weights")}, .about = {.from = "m.gguf", .system = "be kind"}};
  ASSERT_TRUE(store_->create("one", recipe).ok());
  ASSERT_TRUE(store_->copy("one", "team/two:v2").ok());
  EXPECT_EQ(names(), (std::vector<std::string>{"one", "team/two:v2"}));
  fs::remove(folder_ / "m.gguf");
  EXPECT_EQ(fs::hard_link_count(store_->find("one")->path), 2u);
  ASSERT_TRUE(store_->remove("one:latest").ok());
  const auto left = store_->find("team/two:v2");
  ASSERT_TRUE(left);
  EXPECT_EQ(left->about.system, "be kind");
  EXPECT_EQ(left->bytes, 7);
  ASSERT_TRUE(store_->remove("team/two:v2").ok());
  EXPECT_TRUE(names().empty());
  EXPECT_FALSE(fs::exists(store_->folder() / "names/team"));
  EXPECT_EQ(store_->remove("one").error().kind, ErrorKind::user);
}

TEST_F(ModelStoreTest, ASingleFileIsStoredAsGguf) {
  ASSERT_TRUE(store_
                  ->create("one", {.files = {file("plain", "weights")},
                                   .about = {.from = "plain", .draft = "small"},
                                   .draft_files = {file("small", "few")}})
                  .ok());
  const auto one = store_->find("one");
  ASSERT_TRUE(one);
  EXPECT_EQ(fs::path(one->path).filename(), "plain.gguf");
  EXPECT_EQ(fs::path(one->about.draft).filename(), "small.gguf");
  ASSERT_TRUE(
      store_->create("folder", {.files = {file("f/config.json", "{}"), file("f/model.safetensors", "w")}}).ok());
  EXPECT_TRUE(fs::exists(fs::path(store_->find("folder")->path) / "config.json"));
}

TEST_F(ModelStoreTest, FilesOfSeveralNamesAreCountedOnce) {
  const ModelRecipe recipe{.files = {file("m.gguf", "weights")},
                           .about = {.from = "m.gguf", .draft = "m.gguf"},
                           .draft_files = {(folder_ / "m.gguf").string()}};
  ASSERT_TRUE(store_->create("one", recipe).ok());
  EXPECT_EQ(store_->find("one")->bytes, 7);  // it drafts for itself
  ASSERT_TRUE(store_->copy("one", "two").ok());
  ASSERT_TRUE(store_->create("three", {.files = {file("n.gguf", "more")}}).ok());
  EXPECT_EQ(disk_bytes(store_->list()), 11);
}

TEST_F(ModelStoreTest, ADraftIsStoredBesideItsModelAndCopied) {
  const ModelRecipe recipe{.files = {file("m.gguf", "weights")},
                           .about = {.from = "m.gguf", .draft = "m.gguf", .kept = {{"PARSER", "p"}}},
                           .draft_files = {file("small/m.gguf", "few")}};
  ASSERT_TRUE(store_->create("one", recipe).ok());
  ASSERT_TRUE(store_->create("built", {.built_in = "stories", .about = {.draft = "stories-draft"}}).ok());
  ASSERT_TRUE(store_->copy("one", "two").ok());
  ASSERT_TRUE(store_->remove("one").ok());
  fs::remove_all(folder_ / "small");
  const auto left = store_->find("two");
  ASSERT_TRUE(left);
  EXPECT_EQ(left->bytes, 10);
  EXPECT_EQ(fs::file_size(left->about.draft), 3u);
  EXPECT_NE(left->about.draft, left->path);
  EXPECT_EQ(left->about.kept, recipe.about.kept);
  EXPECT_EQ(store_->find("built")->about.draft, "stories-draft");
  EXPECT_TRUE(store_->find("built")->draft_files.empty());
}

TEST_F(ModelStoreTest, ACreateThatFailsLeavesTheOldModel) {
  ASSERT_TRUE(store_->create("a", {.files = {file("m.gguf", "1")}}).ok());
  EXPECT_EQ(store_->create("a", {.files = {(folder_ / "none.gguf").string()}}).error().kind, ErrorKind::corrupt);
  EXPECT_EQ(store_->find("a")->bytes, 1);
  EXPECT_EQ(names().size(), 1u);
  for (const char* bad : {"", "..", "../a", "a/../b", "/a", "a/", "a:", "a:b:c", "a b", "a/b/c/d", ".a", "a\n"})
    EXPECT_EQ(store_->create(bad, {.files = {file("m.gguf", "1")}}).error().kind, ErrorKind::user) << bad;
}

TEST_F(ModelStoreTest, DownloadsAreFoundAndRemovedWithTheirBlobs) {
  cache("m-Q4_K_M.gguf", "aa", "four");
  cache("m-Q8_0.gguf", "bb", "eight!");
  EXPECT_EQ(names(), (std::vector<std::string>{"owner/name:Q4_K_M", "owner/name:Q8_0"}));
  EXPECT_EQ(store_->find("hf.co/owner/name:q8_0")->bytes, 6);
  EXPECT_EQ(store_->find("owner/name")->name, "owner/name:Q4_K_M");
  EXPECT_EQ(store_->find("owner/name:Q8_0")->used, 0);
  store_->note_use("owner/name:Q8_0");
  EXPECT_GT(store_->find("owner/name:Q8_0")->used, 0);
  ASSERT_TRUE(store_->copy("owner/name:Q8_0", "mine").ok());
  ASSERT_TRUE(store_->remove("owner/name:Q8_0").ok());
  EXPECT_FALSE(fs::exists(folder_ / "hub/models--owner--name/blobs/bb"));
  EXPECT_TRUE(fs::exists(folder_ / "hub/models--owner--name/blobs/aa"));
  EXPECT_EQ(store_->find("mine")->bytes, 6);
  ASSERT_TRUE(store_->remove("owner/name").ok());
  EXPECT_FALSE(fs::exists(folder_ / "hub/models--owner--name"));
}

TEST_F(ModelStoreTest, UploadsAreVerified) {
  const std::string digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";  // of "hello"
  EXPECT_FALSE(store_->blob(digest));
  EXPECT_EQ(store_->add_blob(digest, "hullo").error().kind, ErrorKind::user);
  EXPECT_EQ(store_->add_blob("sha256:../x", "hello").error().kind, ErrorKind::user);
  ASSERT_TRUE(store_->add_blob(digest, "hello").ok());
  ASSERT_TRUE(store_->blob(digest));
  EXPECT_EQ(fs::file_size(*store_->blob(digest)), 5u);
}

}  // namespace
}  // namespace millrace
