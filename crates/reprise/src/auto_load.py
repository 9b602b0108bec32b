# gdb finds scripts for a library (NAME-gdb.py) by the name of its file. Its files are links into the trace here, where they have other names.
# So this lays out links to the scripts under those names, in a directory in which gdb looks as well. Whether a script is trusted is asked of
# the script itself, as ever ("set auto-load safe-path"). Run inside gdb, before it reads any file.
import gdb
import os

ENDINGS = ("-gdb.py", "-gdb.gdb", "-gdb.scm")
# A script looks for its modules from where its library is, at most so many directories up.
MOST_UP = 4


# Directories that were read, and what is in them.
listed = {}


def files_in(directory):
    if directory not in listed:
        try:
            listed[directory] = sorted(os.listdir(directory))
        except OSError:
            listed[directory] = []
    return listed[directory]


def script_directories():
    value = gdb.parameter("auto-load scripts-directory") or ""
    for known, parameter in (("$debugdir", "debug-file-directory"), ("$datadir", "data-directory")):
        value = value.replace(known, gdb.parameter(parameter) or "")
    return [part for part in value.split(":") if part]


def scripts_of(name, directories):
    # The program has opened a link, mostly, and the script has the name of the file. That is asked of today's machine, if it has one.
    names = {name, os.path.realpath(name)}
    for other in list(names):
        names.update({"/usr" + other} if other.startswith("/lib") else set())
        names.update({other[4:]} if other.startswith("/usr/lib") else set())
    for directory in directories + [""]:
        exact, alike = [], []
        for one in sorted(names):
            place, base = os.path.split(directory + one)
            for file in files_in(place):
                ending = next((e for e in ENDINGS if file.endswith(e)), None)
                if ending and file == base + ending:
                    exact.append((os.path.join(place, file), ending))
                elif ending and directory and file.startswith(base + "."):
                    # Of a library with another number at its end.
                    alike.append((os.path.join(place, file), ending))
        yield from exact or alike[:1]


def link(target, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.lexists(path):
        os.symlink(target, path)


def graft(name, root):
    # Modules of the script, in a directory "share" beside that of the library or above.
    place = os.path.dirname(name)
    for up in range(1, MOST_UP + 1):
        above = "/".join([".."] * up)
        real = os.path.realpath(os.path.join(place, above)) + "/share"
        seen = os.path.normpath(os.path.join(root + place, above))
        if not os.path.isdir(real) or not (seen + "/").startswith(root + "/"):
            continue
        if os.path.isdir(seen + "/share"):
            for child in os.listdir(real):
                link(os.path.join(real, child), os.path.join(seen, "share", child))
        else:
            link(real, seen + "/share")


def lay_out(root):
    directories = script_directories()
    place = os.path.join(os.path.dirname(root), "auto-load")
    found = False
    names = []
    for directory, _, files in os.walk(root):
        names += [os.path.join(directory, file) for file in files]
    for path in names:
        name = path[len(root):]
        for script, ending in scripts_of(name, directories):
            link(script, place + os.path.realpath(path) + ending)
            graft(name, root)
            found = True
    if found:
        gdb.execute("add-auto-load-scripts-directory " + place, to_string=True)


try:
    lay_out(os.environ["REPRISE_ROOT"])
except (OSError, KeyError, gdb.error) as error:
    gdb.write("reprise: no scripts for libraries are loaded: %s\n" % error)
