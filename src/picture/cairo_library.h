// Cairo and Pango, loaded when the first picture is drawn: thirty shared libraries that a server never needs. Their
// headers give the types; no function of theirs is linked. Included by the files of this folder that draw, only.
#pragma once

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>
#include <pango/pangocairo.h>

#include "base/result.h"
#include "picture/cairo_loader.h"

namespace millrace {

// MILLRACE_CAIRO_FUNCTION(NAME) for each function that pictures call.
#define MILLRACE_CAIRO_FUNCTIONS                                    \
  MILLRACE_CAIRO_FUNCTION(cairo_arc)                                \
  MILLRACE_CAIRO_FUNCTION(cairo_close_path)                         \
  MILLRACE_CAIRO_FUNCTION(cairo_create)                             \
  MILLRACE_CAIRO_FUNCTION(cairo_destroy)                            \
  MILLRACE_CAIRO_FUNCTION(cairo_fill)                               \
  MILLRACE_CAIRO_FUNCTION(cairo_fill_preserve)                      \
  MILLRACE_CAIRO_FUNCTION(cairo_font_options_create)                \
  MILLRACE_CAIRO_FUNCTION(cairo_font_options_destroy)               \
  MILLRACE_CAIRO_FUNCTION(cairo_font_options_set_antialias)         \
  MILLRACE_CAIRO_FUNCTION(cairo_font_options_set_hint_metrics)      \
  MILLRACE_CAIRO_FUNCTION(cairo_font_options_set_hint_style)        \
  MILLRACE_CAIRO_FUNCTION(cairo_image_surface_create)               \
  MILLRACE_CAIRO_FUNCTION(cairo_line_to)                            \
  MILLRACE_CAIRO_FUNCTION(cairo_move_to)                            \
  MILLRACE_CAIRO_FUNCTION(cairo_new_path)                           \
  MILLRACE_CAIRO_FUNCTION(cairo_paint)                              \
  MILLRACE_CAIRO_FUNCTION(cairo_pdf_surface_create_for_stream)      \
  MILLRACE_CAIRO_FUNCTION(cairo_pdf_surface_set_metadata)           \
  MILLRACE_CAIRO_FUNCTION(cairo_rectangle)                          \
  MILLRACE_CAIRO_FUNCTION(cairo_restore)                            \
  MILLRACE_CAIRO_FUNCTION(cairo_rotate)                             \
  MILLRACE_CAIRO_FUNCTION(cairo_save)                               \
  MILLRACE_CAIRO_FUNCTION(cairo_scale)                              \
  MILLRACE_CAIRO_FUNCTION(cairo_set_dash)                           \
  MILLRACE_CAIRO_FUNCTION(cairo_set_line_cap)                       \
  MILLRACE_CAIRO_FUNCTION(cairo_set_line_join)                      \
  MILLRACE_CAIRO_FUNCTION(cairo_set_line_width)                     \
  MILLRACE_CAIRO_FUNCTION(cairo_set_source_rgba)                    \
  MILLRACE_CAIRO_FUNCTION(cairo_status)                             \
  MILLRACE_CAIRO_FUNCTION(cairo_status_to_string)                   \
  MILLRACE_CAIRO_FUNCTION(cairo_stroke)                             \
  MILLRACE_CAIRO_FUNCTION(cairo_surface_destroy)                    \
  MILLRACE_CAIRO_FUNCTION(cairo_surface_finish)                     \
  MILLRACE_CAIRO_FUNCTION(cairo_surface_status)                     \
  MILLRACE_CAIRO_FUNCTION(cairo_surface_write_to_png_stream)        \
  MILLRACE_CAIRO_FUNCTION(cairo_svg_surface_create_for_stream)      \
  MILLRACE_CAIRO_FUNCTION(cairo_svg_surface_set_document_unit)      \
  MILLRACE_CAIRO_FUNCTION(cairo_translate)                          \
  MILLRACE_CAIRO_FUNCTION(g_object_unref)                           \
  MILLRACE_CAIRO_FUNCTION(pango_attr_insert_hyphens_new)            \
  MILLRACE_CAIRO_FUNCTION(pango_attr_list_insert)                   \
  MILLRACE_CAIRO_FUNCTION(pango_attr_list_new)                      \
  MILLRACE_CAIRO_FUNCTION(pango_attr_list_unref)                    \
  MILLRACE_CAIRO_FUNCTION(pango_cairo_context_set_font_options)     \
  MILLRACE_CAIRO_FUNCTION(pango_cairo_create_layout)                \
  MILLRACE_CAIRO_FUNCTION(pango_cairo_font_map_get_default)         \
  MILLRACE_CAIRO_FUNCTION(pango_cairo_show_layout)                  \
  MILLRACE_CAIRO_FUNCTION(pango_font_description_free)              \
  MILLRACE_CAIRO_FUNCTION(pango_font_description_new)               \
  MILLRACE_CAIRO_FUNCTION(pango_font_description_set_absolute_size) \
  MILLRACE_CAIRO_FUNCTION(pango_font_description_set_family_static) \
  MILLRACE_CAIRO_FUNCTION(pango_font_description_set_weight)        \
  MILLRACE_CAIRO_FUNCTION(pango_font_map_create_context)            \
  MILLRACE_CAIRO_FUNCTION(pango_font_map_load_font)                 \
  MILLRACE_CAIRO_FUNCTION(pango_layout_get_context)                 \
  MILLRACE_CAIRO_FUNCTION(pango_layout_get_size)                    \
  MILLRACE_CAIRO_FUNCTION(pango_layout_set_alignment)               \
  MILLRACE_CAIRO_FUNCTION(pango_layout_set_attributes)              \
  MILLRACE_CAIRO_FUNCTION(pango_layout_set_auto_dir)                \
  MILLRACE_CAIRO_FUNCTION(pango_layout_set_ellipsize)               \
  MILLRACE_CAIRO_FUNCTION(pango_layout_set_font_description)        \
  MILLRACE_CAIRO_FUNCTION(pango_layout_set_height)                  \
  MILLRACE_CAIRO_FUNCTION(pango_layout_set_text)                    \
  MILLRACE_CAIRO_FUNCTION(pango_layout_set_width)                   \
  MILLRACE_CAIRO_FUNCTION(pango_layout_set_wrap)

struct CairoLibrary {
#define MILLRACE_CAIRO_FUNCTION(name) decltype(&::name) name = nullptr;
  MILLRACE_CAIRO_FUNCTIONS
#undef MILLRACE_CAIRO_FUNCTION
};

// Returns the functions; loads them at the first call. Any thread may call. Errors: those of check_cairo().
Result<const CairoLibrary*> cairo_library();

}  // namespace millrace
