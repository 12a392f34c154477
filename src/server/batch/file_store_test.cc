#include "server/batch/file_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "base/storage_error.h"
#include "server/api/api_error.h"
#include "server/batch/line_runner.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("millrace_store_" + std::to_string(getpid()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
  std::unique_ptr<FileStore> open(const FileLimits& limits = {}) const {
    auto store = FileStore::open(path, limits);
    EXPECT_TRUE(store.ok());
    return store.ok() ? std::move(*store) : nullptr;
  }
};

TEST(FileStore, CompleteFilesSurviveARestart) {
  Folder folder;
  std::string id;
  {
    const auto store = folder.open();
    id = store->add("a.txt", "batch", "content")->id;
    ASSERT_TRUE(store->add("b.txt", "batch", "")->bytes == 0);
  }
  std::ofstream(folder.path / "file-000000000000000000000001") << "no note";
  std::ofstream(folder.path / "file-000000000000000000000002.json") << R"({"filename": "no bytes"})";
  std::ofstream(folder.path / "file-000000000000000000000003.tmp") << "a draft";
  const auto store = folder.open();
  EXPECT_EQ(store->list().size(), 2u);
  ASSERT_TRUE(store->find(id));
  EXPECT_EQ(store->find(id)->filename, "a.txt");
  EXPECT_EQ(*store->read(id), "content");
  EXPECT_FALSE(fs::exists(folder.path / "file-000000000000000000000001"));
  EXPECT_FALSE(fs::exists(folder.path / "file-000000000000000000000003.tmp"));
}

TEST(FileStore, EnforcesItsLimits) {
  Folder folder;
  const auto store = folder.open({.files = 3, .bytes = 10});
  const auto first = store->add("a", "batch", "123456");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(store->add("b", "batch", "12345").error().kind, ErrorKind::resource);
  EXPECT_TRUE(store->remove(first->id));
  EXPECT_FALSE(store->remove(first->id));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(store->add("c", "batch", "123").ok());
  EXPECT_EQ(store->add("d", "batch", "").error().kind, ErrorKind::resource);
}

TEST(FileStore, AdoptIsIdempotent) {
  Folder folder;
  const auto store = folder.open();
  std::ofstream(folder.path / "draft") << "abc";
  const std::string id = FileStore::new_id();
  EXPECT_EQ(store->adopt(folder.path / "draft", id, "out", "batch_output")->bytes, 3);
  EXPECT_EQ(store->adopt(folder.path / "draft", id, "out", "batch_output")->bytes, 3);
  EXPECT_FALSE(store->adopt(folder.path / "draft", FileStore::new_id(), "out", "batch_output").ok());
  EXPECT_EQ(*store->read(id), "abc");
}

// A process that is killed leaves what it has written so far. Every prefix of the steps that publish a file is tried.
TEST(FileStore, ACrashBetweenAnyTwoStepsLosesNoResult) {
  const std::string id = "file-0123456789abcdef01234567", note = R"({"filename": "out", "purpose": "batch_output"})";
  for (int steps = 0; steps <= 3; ++steps) {
    Folder folder;
    folder.open();
    const fs::path draft = folder.path / "batch_1.output";
    std::ofstream(draft) << "answers";
    if (steps >= 1) std::ofstream(folder.path / (id + ".json.tmp")) << note.substr(0, 5);
    if (steps >= 2) {
      fs::remove(folder.path / (id + ".json.tmp"));
      std::ofstream(folder.path / (id + ".json")) << note;
    }
    if (steps >= 3) fs::rename(draft, folder.path / id);
    const auto store = folder.open();
    EXPECT_EQ(store->find(id).has_value(), steps == 3) << steps;
    ASSERT_TRUE(store->adopt(draft, id, "out", "batch_output").ok()) << steps;  // as finalizing again does
    EXPECT_EQ(*store->read(id), "answers");
    EXPECT_EQ(store->list().size(), 1u);
  }
}

// The description must be there before the rename that publishes the bytes: the order that the test above assumes.
TEST(FileStore, DescribesAFileBeforeItPublishesTheBytes) {
  Folder folder;
  const auto store = folder.open();
  const std::string id = FileStore::new_id();
  std::ofstream(folder.path / "draft") << "abc";
  fs::create_directories(folder.path / id / "occupied");  // the rename fails
  EXPECT_FALSE(store->adopt(folder.path / "draft", id, "out", "batch_output").ok());
  EXPECT_TRUE(fs::exists(folder.path / (id + ".json")));
  EXPECT_TRUE(fs::exists(folder.path / "draft"));
  EXPECT_FALSE(store->find(id));
}

TEST(FileStore, TwoServersDoNotShareAFolder) {
  Folder folder;
  {
    const auto store = folder.open();
    const auto second = FileStore::open(folder.path, {});
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().kind, ErrorKind::user);
    EXPECT_NE(second.error().message.find("another running server"), std::string::npos);
  }
  EXPECT_NE(folder.open(), nullptr);
}

TEST(FileStore, ErrorsOfTheDiskAreStorageErrorsWithoutAPath) {
  Folder folder;
  const auto store = folder.open();
  fs::remove_all(folder.path);
  const auto added = store->add("a", "batch", "123");
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().kind, kStorageError);
  EXPECT_EQ(added.error().message.find(folder.path.string()), std::string::npos) << added.error().message;
  EXPECT_EQ(http_status(ApiError::from(added.error()).kind), 507);
}

TEST(FileStore, StoredIds) {
  EXPECT_TRUE(is_stored_id(FileStore::new_id(), "file-"));
  EXPECT_NE(FileStore::new_id(), FileStore::new_id());
  EXPECT_FALSE(is_stored_id("file-../../../../etc/passwd", "file-"));
  EXPECT_FALSE(is_stored_id("file-00000000000000000000000G", "file-"));
  std::ofstream(fs::temp_directory_path() / ("millrace_no_folder_" + std::to_string(getpid()))) << "x";
  const fs::path file = fs::temp_directory_path() / ("millrace_no_folder_" + std::to_string(getpid()));
  EXPECT_EQ(FileStore::open(file, {}).error().kind, ErrorKind::user);
  fs::remove(file);
}

TEST(BatchLine, ParsesOpenAiLines) {
  const auto line =
      parse_batch_line(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}})");
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->custom_id, "a");
  EXPECT_EQ(line->body["prompt"], "x");
  for (const char* bad : {"", "[]", "{", R"({"url": "/v1/completions", "body": {}})",
                          R"({"custom_id": "", "url": "/v1/completions", "body": {}})",
                          R"({"custom_id": 5, "url": "/v1/completions", "body": {}})",
                          R"({"custom_id": "a", "url": "/metrics", "body": {}})",
                          R"({"custom_id": "a", "url": "/v1/completions", "body": []})",
                          R"({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}})"})
    EXPECT_EQ(parse_batch_line(bad).error().kind, ErrorKind::user) << bad;
  EXPECT_FALSE(parse_batch_line(std::string(kMaxLineBytes + 1, ' ')).ok());
}

TEST(BatchLine, ResultLinesRoundTrip) {
  const auto good = parse_result_line(result_line({"a", "id", 200, {{"x", 1}}})),
             bad = parse_result_line(result_line({"b", "id", 400, nullptr}));
  ASSERT_TRUE(good && bad);
  EXPECT_EQ(good->custom_id, "a");
  EXPECT_TRUE(good->good);
  EXPECT_FALSE(bad->good);
  EXPECT_FALSE(parse_result_line(R"({"custom_id": "a")"));
  EXPECT_FALSE(parse_result_line(R"({"custom_id": "a"})"));
}

}  // namespace
}  // namespace millrace
