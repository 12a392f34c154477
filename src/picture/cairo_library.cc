#include "picture/cairo_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#ifdef MILLRACE_SANITIZED
// Fontconfig keeps the fonts that it has found until the process ends, behind pointers that the leak sanitizer cannot
// follow. Drawing more pictures takes no more memory.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libfontconfig\n"; }
#endif

namespace millrace {
namespace {

// The libraries in the order in which they are opened: each needs the ones before it. The system finds all further
// dependencies.
constexpr const char* kFiles[] = {"libcairo.so.2", "libgobject-2.0.so.0", "libpango-1.0.so.0",
                                  "libpangocairo-1.0.so.0"};

constexpr const char* kInstall =
    "; install Cairo and Pango (Debian and Ubuntu: libpangocairo-1.0-0 and fonts-dejavu-core), or leave out the "
    "picture";

Result<CairoLibrary> load_library(const LibraryOpener& open) {
  std::array<void*, std::size(kFiles)> handles{};
  for (size_t i = 0; i < handles.size(); ++i) {
    handles[i] = open(kFiles[i]);
    if (!handles[i])
      return Error::unsupported(fmt::format("pictures need {}, which is not on this machine{}", kFiles[i], kInstall));
  }
  CairoLibrary library;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    void* found = nullptr;
    for (void* handle : handles)
      if (!found) found = dlsym(handle, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    if (!found) missing = name;
  };
#define MILLRACE_CAIRO_FUNCTION(name) find(#name, library.name);
  MILLRACE_CAIRO_FUNCTIONS
#undef MILLRACE_CAIRO_FUNCTION
  if (missing)
    return Error::unsupported(fmt::format(
        "Cairo and Pango on this machine are too old for pictures, they have no {}; cairo 1.16 and pango 1.44 do{}",
        missing, kInstall));
  return library;
}

// Text without any font would be drawn as nothing.
Result<void> check_font(const CairoLibrary& cairo) {
  PangoFontMap* fonts = cairo.pango_cairo_font_map_get_default();
  PangoContext* context = cairo.pango_font_map_create_context(fonts);
  PangoFontDescription* wanted = cairo.pango_font_description_new();
  cairo.pango_font_description_set_family_static(wanted, "sans-serif");
  PangoFont* font = cairo.pango_font_map_load_font(fonts, context, wanted);
  cairo.pango_font_description_free(wanted);
  if (font) cairo.g_object_unref(font);
  cairo.g_object_unref(context);
  if (font) return {};
  return Error::unsupported(fmt::format("pictures need a font, and this machine has none{}", kInstall));
}

Result<CairoLibrary> load_checked(const LibraryOpener& open) {
  MILLRACE_TRY(const CairoLibrary library, load_library(open));
  MILLRACE_TRY_VOID(check_font(library));
  return library;
}

}  // namespace

void* open_picture_library(const std::string& file) {
  const char* folder = std::getenv("MILLRACE_CAIRO");
  // The libraries stay open: fonts that they keep are found through them.
  return dlopen(folder && *folder ? fmt::format("{}/{}", folder, file).c_str() : file.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

Result<void> check_cairo(const LibraryOpener& open) {
  MILLRACE_TRY_VOID(load_checked(open));
  return {};
}

Result<const CairoLibrary*> cairo_library() {
  static const Result<CairoLibrary> loaded = load_checked(open_picture_library);
  if (!loaded.ok()) return loaded.error();
  return &*loaded;
}

}  // namespace millrace
