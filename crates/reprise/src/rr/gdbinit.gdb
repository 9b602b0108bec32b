set confirm off
python

class AsRr(gdb.Command):
    """A command that the replay's server answers, as rr's does"""

    def __init__(self, name, doc, where=False):
        self.__doc__ = doc
        self.name, self.where = name, where
        super().__init__(name, gdb.COMMAND_USER, gdb.COMPLETE_NONE)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        if self.where:
            words.insert(0, self.place())
        thread = gdb.selected_thread()
        number = thread.ptid[1] if thread and thread.is_valid() else -1
        packet = ":".join(["qRRCmd", self.name, str(number)] + [w.encode().hex() for w in words])
        said = gdb.execute("maint packet " + packet, to_string=True)
        begin = said.find('received: "')
        digits = said[begin + len('received: "'):].split('"')[0] if begin >= 0 else ""
        try:
            gdb.write(bytes.fromhex(digits).decode(errors="replace"))
        except ValueError:
            raise gdb.GdbError("the server does not answer: " + said.strip())

    def place(self):
        try:
            lines = gdb.execute("frame 0", to_string=True).splitlines()
            return lines[0].lstrip("#0").strip()
        except gdb.error:
            return "???"

AsRr("when", "How many events of the recording have happened.")
AsRr("when-tid", "The id of the current thread in the recording.")
AsRr("checkpoint", "Remember this place, for restart.", where=True)
AsRr("delete checkpoint", "delete checkpoint N: forget the place that checkpoint N remembers.")
AsRr("info checkpoints", "The places that checkpoint has remembered.")

end
define restart
  run c$arg0
end
document restart
restart N: go to the place that checkpoint N remembers. `run N` goes to event N, `run` to where the session began.
end
handle SIGURG stop
