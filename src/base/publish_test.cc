#include "base/publish.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("millrace_publish_" + std::to_string(::getpid()));
  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
};

void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
void make_model(const fs::path& path, const std::string& text) {
  fs::create_directories(path / "more");
  write(path / "config", text);
  write(path / "more" / "weights", text);
}

TEST(Publish, FilesLinksAndFoldersReplaceOlderOnes) {
  const Folder folder;
  for (const std::string text : {"first", "second"}) {
    write(folder.path / "a.partial", text);
    EXPECT_FALSE(publish(folder.path / "a.partial", folder.path / "a"));
    EXPECT_EQ(read(folder.path / "a"), text);
    write(folder.path / text, text);
    fs::create_symlink(text, folder.path / "link.partial");
    EXPECT_FALSE(publish(folder.path / "link.partial", folder.path / "link"));
    EXPECT_EQ(read(folder.path / "link"), text);
    make_model(folder.path / "model.partial", text);
    EXPECT_FALSE(publish(folder.path / "model.partial", folder.path / "model"));
    EXPECT_EQ(read(folder.path / "model" / "more" / "weights"), text);
  }
  for (const char* name : {"a.partial", "link.partial", "model.partial"}) EXPECT_FALSE(fs::exists(folder.path / name));
  fs::create_symlink("nowhere", folder.path / "link.partial");
  EXPECT_FALSE(publish(folder.path / "link.partial", folder.path / "link")) << "a link's target may be missing";
}

TEST(Publish, ErrorsChangeNothing) {
  const Folder folder;
  EXPECT_TRUE(publish(folder.path / "missing", folder.path / "a"));
  write(folder.path / "a.partial", "new");
  make_model(folder.path / "model", "old");
  EXPECT_TRUE(publish(folder.path / "a.partial", folder.path / "no" / "a"));
  EXPECT_TRUE(publish(folder.path / "a.partial", folder.path / "model")) << "a file does not replace a folder";
  EXPECT_EQ(read(folder.path / "a.partial"), "new");
  EXPECT_EQ(read(folder.path / "model" / "config"), "old");
}

// A process that replaces a model again and again is killed at any moment: the model is there as a whole.
TEST(Publish, AKilledProcessLeavesTheOldOrTheNewContent) {
  const Folder folder;
  make_model(folder.path / "model", "0");
  write(folder.path / "file", "0");
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int i = 0;; ++i) {
        std::error_code ignored;
        fs::remove_all(folder.path / "model.partial", ignored);
        make_model(folder.path / "model.partial", std::to_string(i));
        write(folder.path / "file.partial", std::to_string(i));
        if (publish(folder.path / "model.partial", folder.path / "model") ||
            publish(folder.path / "file.partial", folder.path / "file"))
          ::_exit(1);
      }
    }
    ::usleep(static_cast<useconds_t>(500 + 700 * round));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "publish() failed";
    EXPECT_NE(read(folder.path / "file"), "");
    const std::string config = read(folder.path / "model" / "config");
    EXPECT_NE(config, "");
    EXPECT_EQ(config, read(folder.path / "model" / "more" / "weights"));
  }
}

}  // namespace
}  // namespace millrace
