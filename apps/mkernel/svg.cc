#include "svg.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace mkernel::app {
namespace {

constexpr double kLabelWidth = 130;
constexpr double kBarWidth = 420;  // of the longest time
constexpr double kValueWidth = 110;
constexpr double kRowHeight = 30;
constexpr double kTop = 44;

[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

std::string bar(const TimedRun& run, double y, double us_per_unit) {
  const auto x = [us_per_unit](double us) { return kLabelWidth + us / us_per_unit; };
  const double middle = y + kRowHeight / 2;
  return format("<text x='%.1f' y='%.1f' text-anchor='end'>%s</text>\n", kLabelWidth - 8,
                middle + 4, run.name.c_str()) +
         format("<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='#4878a8'/>\n",
                kLabelWidth, y + 5, run.median_us / us_per_unit, kRowHeight - 10) +
         format("<path d='M%.1f %.1fH%.1f' stroke='#202020' stroke-width='2'/>\n", x(run.p10_us),
                middle, x(run.p90_us)) +
         format("<text x='%.1f' y='%.1f'>%.1f us</text>\n", x(run.p90_us) + 6, middle + 4,
                run.median_us);
}

}  // namespace

std::string bar_chart(const std::string& title, const std::vector<TimedRun>& runs) {
  double longest = 1e-9;  // not 0: it divides
  for (const TimedRun& run : runs) longest = std::max({longest, run.median_us, run.p90_us});
  const double width = kLabelWidth + kBarWidth + kValueWidth;
  const double height = kTop + kRowHeight * static_cast<double>(runs.size()) + 10;
  std::string svg = format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
      "font-family='sans-serif' font-size='13'>\n"
      "<rect width='100%%' height='100%%' fill='white'/>\n"
      "<text x='10' y='24' font-size='15'>%s</text>\n",
      width, height, title.c_str());
  double y = kTop;
  for (const TimedRun& run : runs) {
    svg += bar(run, y, longest / kBarWidth);
    y += kRowHeight;
  }
  return svg + "</svg>\n";
}

}  // namespace mkernel::app
