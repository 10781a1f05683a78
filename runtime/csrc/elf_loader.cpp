// Links relocatable x86-64 ELF objects into this process: layout, GOT and stubs, relocations, protection.
//
// Nothing in an object is trusted: every offset, index and size is checked before it is used.
#include "elf_loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>

#include <cstring>
#include <map>

namespace tw {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLargestImage = 1ull << 30;  // keeps every displacement inside the image within 32 bits
constexpr uint64_t kNowhere = ~0ull;
constexpr uint64_t kStubBytes = 16;

enum Segment { kText, kReadOnly, kData, kSegments };

uint64_t align_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

struct Section {
  Elf64_Shdr header;
  std::string name;
  uint64_t place = kNowhere;  // offset in the image
};

// One object: bounds-checked views of its tables, then places for its sections, GOT entries and stubs.
class Object {
 public:
  explicit Object(const tw_object &source) : source_(source) {
    read_sections();
    read_symbols();
  }

  void place(Segment segment, uint64_t &at);
  void place_got(uint64_t &at);
  void place_stubs(uint64_t &at);
  void link(char *base, uint64_t got);
  tw_kernel_fn entry(char *base) const;
  bool needs_low_addresses() const { return low_; }

  [[noreturn]] void refuse(const std::string &what) const {
    throw LoadError(std::string("kernel `") + source_.name + "`: " + what);
  }

 private:
  template <class T>
  T read(uint64_t offset, const char *what) const {
    if (offset > source_.size || sizeof(T) > source_.size - offset)
      refuse(std::string(what) + " lies outside the object (offset " + std::to_string(offset) + ", size " +
             std::to_string(source_.size) + ")");
    T value;
    std::memcpy(&value, source_.data + offset, sizeof(T));
    return value;
  }
  std::string text(const Section &strings, uint64_t offset) const;
  void read_sections();
  void read_symbols();
  void read_relocations(const Section &section);
  void relocate(char *base, uint64_t got, const Section &target, const Elf64_Rela &rela);
  uint64_t symbol_address(char *base, uint32_t index);
  static bool is_loaded(const Section &section);
  static Segment segment_of(const Section &section);

  tw_object source_;
  std::vector<Section> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<std::string> names_;
  std::vector<std::pair<uint32_t, Elf64_Rela>> relocations_;  // target section, entry
  std::map<uint32_t, uint64_t> got_, stubs_;                  // symbol -> offset in the image
  bool low_ = false;
};

std::string Object::text(const Section &strings, uint64_t offset) const {
  const Elf64_Shdr &h = strings.header;
  if (h.sh_type != SHT_STRTAB || offset >= h.sh_size) refuse("a name lies outside its string table");
  const char *start = reinterpret_cast<const char *>(source_.data) + h.sh_offset + offset;
  size_t limit = h.sh_size - offset, length = strnlen(start, limit);
  if (length == limit) refuse("a name in a string table is not terminated");
  return std::string(start, length);
}

bool Object::is_loaded(const Section &s) {
  if (!(s.header.sh_flags & SHF_ALLOC) || s.header.sh_type == SHT_X86_64_UNWIND) return false;
  return s.name.rfind(".eh_frame", 0) != 0 && s.header.sh_type != SHT_NOTE;
}

Segment Object::segment_of(const Section &s) {
  if (s.header.sh_flags & SHF_EXECINSTR) return kText;
  // Relocated constants are written while linking and read-only afterwards, like a dynamic linker's RELRO.
  if (!(s.header.sh_flags & SHF_WRITE) || s.name.rfind(".data.rel.ro", 0) == 0) return kReadOnly;
  return kData;
}

void Object::read_sections() {
  auto header = read<Elf64_Ehdr>(0, "the ELF header");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG)) refuse("not an ELF object (wrong magic bytes)");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != EM_X86_64)
    refuse("not an x86-64 ELF object (machine " + std::to_string(header.e_machine) + ")");
  if (header.e_type != ET_REL)
    refuse("expected a relocatable object, found ELF type " + std::to_string(header.e_type));
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 || header.e_shstrndx >= header.e_shnum)
    refuse("malformed section table");
  if (header.e_shoff > source_.size) refuse("the section table lies outside the object");
  for (uint32_t i = 0; i < header.e_shnum; ++i) {
    Section section;
    section.header = read<Elf64_Shdr>(header.e_shoff + uint64_t(i) * sizeof(Elf64_Shdr), "a section header");
    const Elf64_Shdr &h = section.header;
    if (i == 0) section.header = Elf64_Shdr{};
    bool has_bytes = i && h.sh_type != SHT_NOBITS && h.sh_type != SHT_NULL;
    if (has_bytes && (h.sh_offset > source_.size || h.sh_size > source_.size - h.sh_offset))
      refuse("section " + std::to_string(i) + " lies outside the object");
    if (h.sh_size > kLargestImage && i) refuse("section " + std::to_string(i) + " is larger than 1 GiB");
    sections_.push_back(section);
  }
  for (Section &section : sections_)
    if (section.header.sh_type != SHT_NULL)
      section.name = text(sections_[header.e_shstrndx], section.header.sh_name);
  for (Section &section : sections_) {
    const Elf64_Shdr &h = section.header;
    if (!is_loaded(section)) continue;
    if (h.sh_flags & SHF_TLS) refuse("thread-local section `" + section.name + "` is not supported");
    if (h.sh_type != SHT_PROGBITS && h.sh_type != SHT_NOBITS)
      refuse("section `" + section.name + "` has unsupported type " + std::to_string(h.sh_type));
    if ((h.sh_flags & SHF_EXECINSTR) && (h.sh_flags & SHF_WRITE))
      refuse("section `" + section.name + "` is both writable and executable");
    if (h.sh_addralign > kPage || (h.sh_addralign & (h.sh_addralign - 1)))
      refuse("section `" + section.name + "` asks for alignment " + std::to_string(h.sh_addralign));
  }
}

void Object::read_symbols() {
  for (const Section &section : sections_) {
    const Elf64_Shdr &h = section.header;
    if (h.sh_type == SHT_SYMTAB) {
      if (!symbols_.empty()) refuse("more than one symbol table");
      if (h.sh_entsize != sizeof(Elf64_Sym) || h.sh_link >= sections_.size()) refuse("malformed symbol table");
      for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= h.sh_size; at += sizeof(Elf64_Sym)) {
        symbols_.push_back(read<Elf64_Sym>(h.sh_offset + at, "a symbol"));
        names_.push_back(symbols_.back().st_name ? text(sections_[h.sh_link], symbols_.back().st_name) : "");
      }
    }
  }
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const Elf64_Sym &s = symbols_[i];
    if (s.st_shndx == SHN_UNDEF || s.st_shndx == SHN_ABS) continue;
    if (s.st_shndx >= sections_.size())
      refuse("symbol `" + names_[i] + "` is in unsupported section index " + std::to_string(s.st_shndx));
    const Elf64_Shdr &h = sections_[s.st_shndx].header;
    if (s.st_value > h.sh_size) refuse("symbol `" + names_[i] + "` lies outside its section");
  }
  for (const Section &section : sections_) {
    if (section.header.sh_type == SHT_REL) refuse("relocations without addends are not x86-64");
    if (section.header.sh_type == SHT_RELA) read_relocations(section);
  }
}

void Object::read_relocations(const Section &section) {
  const Elf64_Shdr &h = section.header;
  if (h.sh_info >= sections_.size() || h.sh_entsize != sizeof(Elf64_Rela)) refuse("malformed relocation section");
  const Section &target = sections_[h.sh_info];
  if (!is_loaded(target)) return;
  if (target.header.sh_type == SHT_NOBITS) refuse("relocations against zero-filled section `" + target.name + "`");
  for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= h.sh_size; at += sizeof(Elf64_Rela)) {
    auto rela = read<Elf64_Rela>(h.sh_offset + at, "a relocation");
    uint32_t symbol = ELF64_R_SYM(rela.r_info);
    if (symbol >= symbols_.size()) refuse("a relocation names symbol " + std::to_string(symbol) + " of " +
                                          std::to_string(symbols_.size()));
    switch (ELF64_R_TYPE(rela.r_info)) {
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX:
      case R_X86_64_GOT64:
      case R_X86_64_GOTPCREL64:
        got_.emplace(symbol, kNowhere);
        break;
      case R_X86_64_PLT32:
      case R_X86_64_PLTOFF64:
        if (symbols_[symbol].st_shndx == SHN_UNDEF) {
          got_.emplace(symbol, kNowhere);
          stubs_.emplace(symbol, kNowhere);
        }
        break;
      case R_X86_64_32:
      case R_X86_64_32S:
        low_ = true;
        break;
      default:
        break;
    }
    relocations_.emplace_back(h.sh_info, rela);
  }
}

void Object::place(Segment segment, uint64_t &at) {
  for (Section &section : sections_) {
    if (!is_loaded(section) || segment_of(section) != segment) continue;
    at = align_up(at, std::max<uint64_t>(section.header.sh_addralign, 16));
    section.place = at;
    at += section.header.sh_size;
    if (at > kLargestImage) refuse("the kernels of this package need more than 1 GiB");
  }
}

void Object::place_got(uint64_t &at) {
  for (auto &entry : got_) entry.second = at, at += 8;
}

void Object::place_stubs(uint64_t &at) {
  at = align_up(at, kStubBytes);
  for (auto &entry : stubs_) entry.second = at, at += kStubBytes;
}

uint64_t Object::symbol_address(char *base, uint32_t index) {
  const Elf64_Sym &s = symbols_[index];
  if (index == 0) return 0;
  if (s.st_shndx == SHN_ABS) return s.st_value;
  if (s.st_shndx != SHN_UNDEF) {
    const Section &section = sections_[s.st_shndx];
    if (section.place == kNowhere) refuse("symbol in section `" + section.name + "`, which is not loaded");
    return reinterpret_cast<uint64_t>(base) + section.place + s.st_value;
  }
  if (void *address = external_symbol(names_[index].c_str())) return reinterpret_cast<uint64_t>(address);
  if (ELF64_ST_BIND(s.st_info) == STB_WEAK) return 0;
  refuse("undefined symbol `" + names_[index] + "`: kernels may call libc and libm only");
}

void Object::link(char *base, uint64_t got) {
  for (const Section &section : sections_)
    if (section.place != kNowhere && section.header.sh_type != SHT_NOBITS && section.header.sh_size)
      std::memcpy(base + section.place, source_.data + section.header.sh_offset, section.header.sh_size);
  for (const auto &entry : got_) {
    uint64_t address = symbol_address(base, entry.first);
    std::memcpy(base + entry.second, &address, 8);
  }
  for (const auto &entry : stubs_) {
    // jmp *displacement(%rip), through the symbol's GOT entry.
    int32_t displacement = int32_t(int64_t(got_.at(entry.first)) - int64_t(entry.second + 6));
    const uint8_t jump[2] = {0xff, 0x25};
    std::memcpy(base + entry.second, jump, 2);
    std::memcpy(base + entry.second + 2, &displacement, 4);
  }
  for (const auto &entry : relocations_) relocate(base, got, sections_[entry.first], entry.second);
}

void Object::relocate(char *base, uint64_t got, const Section &target, const Elf64_Rela &rela) {
  uint32_t type = ELF64_R_TYPE(rela.r_info), symbol = ELF64_R_SYM(rela.r_info);
  uint64_t origin = reinterpret_cast<uint64_t>(base);
  uint64_t place = origin + target.place + rela.r_offset, addend = uint64_t(rela.r_addend), value = 0;
  bool is_got_base = names_[symbol] == "_GLOBAL_OFFSET_TABLE_";
  auto address = [&] { return is_got_base ? origin + got : symbol_address(base, symbol); };
  auto callee = [&] { return stubs_.count(symbol) ? origin + stubs_.at(symbol) : address(); };
  int width = 4;
  bool is_signed = true;
  switch (type) {
    case R_X86_64_NONE: return;
    case R_X86_64_64: value = address() + addend, width = 8; break;
    case R_X86_64_PC64: value = address() + addend - place, width = 8; break;
    case R_X86_64_PC32: value = address() + addend - place; break;
    case R_X86_64_32: value = address() + addend, is_signed = false; break;
    case R_X86_64_32S: value = address() + addend; break;
    case R_X86_64_PLT32: value = callee() + addend - place; break;
    case R_X86_64_PLTOFF64: value = callee() + addend - (origin + got), width = 8; break;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: value = origin + got_.at(symbol) + addend - place; break;
    case R_X86_64_GOTPCREL64: value = origin + got_.at(symbol) + addend - place, width = 8; break;
    case R_X86_64_GOT64: value = got_.at(symbol) - got + addend, width = 8; break;
    case R_X86_64_GOTOFF64: value = address() + addend - (origin + got), width = 8; break;
    case R_X86_64_GOTPC32: value = origin + got + addend - place; break;
    case R_X86_64_GOTPC64: value = origin + got + addend - place, width = 8; break;
    default:
      refuse("relocation type " + std::to_string(type) + " in `" + target.name + "` is not supported");
  }
  if (rela.r_offset > target.header.sh_size || uint64_t(width) > target.header.sh_size - rela.r_offset)
    refuse("a relocation lies outside section `" + target.name + "`");
  if (width == 4) {
    bool fits = is_signed ? int64_t(value) == int64_t(int32_t(value)) : value == uint32_t(value);
    if (!fits)
      refuse("symbol `" + names_[symbol] + "` is out of reach of a 32-bit relocation; compile with the PIC "
             "relocation model");
  }
  std::memcpy(base + target.place + rela.r_offset, &value, width);
}

tw_kernel_fn Object::entry(char *base) const {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const Elf64_Sym &s = symbols_[i];
    if (names_[i] != source_.symbol || s.st_shndx == SHN_UNDEF || s.st_shndx >= sections_.size()) continue;
    const Section &section = sections_[s.st_shndx];
    if (section.place == kNowhere || segment_of(section) != kText || s.st_value >= section.header.sh_size)
      refuse(std::string("symbol `") + source_.symbol + "` is not code");
    return reinterpret_cast<tw_kernel_fn>(base + section.place + s.st_value);
  }
  refuse(std::string("the object defines no function `") + source_.symbol + "`");
}

}  // namespace

void *external_symbol(const char *name) {
  if (!*name) return nullptr;
  if (void *address = builtin_symbol(name)) return address;
  if (void *address = emulator_symbol(name)) return address;
  if (void *address = dlsym(RTLD_DEFAULT, name)) return address;
  static void *const libm = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  return libm ? dlsym(libm, name) : nullptr;
}

KernelCode::KernelCode(const tw_object *objects, int64_t count) {
  if (count == 0) return;
  std::vector<Object> parts;
  parts.reserve(count);
  bool low = false;
  for (int64_t i = 0; i < count; ++i) {
    parts.emplace_back(objects[i]);
    low |= parts.back().needs_low_addresses();
  }
  // Image: code and stubs | constants and GOT | data, each on its own pages.
  uint64_t ends[kSegments], at = 0, got = 0;
  for (int segment = kText; segment < kSegments; ++segment) {
    at = align_up(at, kPage);
    for (Object &part : parts) part.place(Segment(segment), at);
    if (segment == kText)
      for (Object &part : parts) part.place_stubs(at);
    if (segment == kReadOnly) {
      got = at = align_up(at, 16);
      for (Object &part : parts) part.place_got(at);
    }
    ends[segment] = align_up(at, kPage);
  }
  size_ = std::max<uint64_t>(ends[kData], kPage);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | (low ? MAP_32BIT : 0);
  void *p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (p == MAP_FAILED) throw LoadError("cannot map " + std::to_string(size_) + " B for kernels");
  base_ = static_cast<char *>(p);
  try {
    for (Object &part : parts) part.link(base_, got);
    for (Object &part : parts) entries_.push_back(part.entry(base_));
    if ((ends[kText] && mprotect(base_, ends[kText], PROT_READ | PROT_EXEC)) ||
        (ends[kReadOnly] > ends[kText] &&
         mprotect(base_ + ends[kText], ends[kReadOnly] - ends[kText], PROT_READ)))
      throw LoadError("this system does not allow executable memory (mprotect failed)");
  } catch (...) {
    munmap(base_, size_);
    throw;
  }
}

KernelCode::~KernelCode() {
  if (base_) munmap(base_, size_);
}

}  // namespace tw
