// Memory of the conformance tests ends at a page that nothing may touch: a kernel that reads or writes beyond its
// arguments ends the program, on every processor and at the speed of the release build. The address sanitizer would
// find the same, but instrumented kernels of whole vectors take minutes to compile, so sanitized builds leave them
// plain (cmake/MillraceSanitizedKernels.cmake). The guard begins at the next multiple of 16 bytes, the alignment of
// operator new. What AlignedBuffer maps is not guarded.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace {

constexpr size_t kGuarded = 256;            // smaller ones are strings and nodes of the test framework
constexpr size_t kArena = size_t{1} << 38;  // bytes of addresses
constexpr size_t kAlignment = 16;
constexpr size_t kKeptPages = 1024;  // blocks of up to as many are used again

// At the start of a block's first page; its data is at the end of the last one.
struct Block {
  size_t pages;
  Block* next;
};

const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
std::mutex mutex;
uint8_t* arena = nullptr;  // mapped by the first allocation, which may come before any initialization
size_t used = 0;
Block* kept[kKeptPages + 1];  // by pages

size_t page() { return page_bytes ? page_bytes : static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Null: there are no more addresses; the memory is then not guarded.
Block* block_of(size_t pages) {
  const std::lock_guard lock(mutex);
  if (!arena) {
    void* mapped = mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    arena = static_cast<uint8_t*>(mapped);
  }
  if (pages <= kKeptPages && kept[pages]) {
    Block* block = kept[pages];
    kept[pages] = block->next;
    return block;
  }
  const size_t bytes = (pages + 1) * page();
  if (bytes > kArena - used || mprotect(arena + used, bytes - page(), PROT_READ | PROT_WRITE) != 0) return nullptr;
  auto* block = reinterpret_cast<Block*>(arena + used);
  used += bytes;
  block->pages = pages;
  return block;
}

void* allocate(size_t size) {
  if (size < kGuarded || size > kArena / 2) return std::malloc(size ? size : 1);
  const size_t whole = (size + kAlignment - 1) / kAlignment * kAlignment;
  const size_t pages = (whole + sizeof(Block) + page() - 1) / page();
  Block* block = block_of(pages);
  return block ? reinterpret_cast<uint8_t*>(block) + pages * page() - whole : std::malloc(size);
}

void give_back(void* memory) {
  auto* const at = static_cast<uint8_t*>(memory);
  if (!arena || at < arena || at >= arena + kArena) return std::free(memory);
  // Data that begins on a second page leaves the first one to the header.
  uint8_t* first = arena + static_cast<size_t>(at - arena) / page() * page();
  if (static_cast<size_t>(at - first) < sizeof(Block)) first -= page();
  auto* block = reinterpret_cast<Block*>(first);
  if (block->pages > kKeptPages) {
    mmap(first, block->pages * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return;
  }
  const std::lock_guard lock(mutex);
  block->next = kept[block->pages];
  kept[block->pages] = block;
}

}  // namespace

void* operator new(size_t size) {
  void* memory = allocate(size);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, size_t) noexcept { give_back(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
