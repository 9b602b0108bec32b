// The extension: starts `reprise dap` for each session, and shows what is found of a variable in a view, from which one goes to where that was.
import * as vscode from 'vscode';

/** What a question has found: a line of the adapter's answer. */
interface Hit {
    event?: number;
    thread?: number;
    function?: string;
    file?: string;
    line?: number;
    value?: string;
    what?: string;
    kind?: string;
    writes?: number;
    first?: number;
    place?: { function?: string; file?: string; line?: number };
}

/** How many hits are shown at most: a view of more is of use to nobody. */
const MOST_SHOWN = 10000;

class Found implements vscode.TreeDataProvider<Hit> {
    private readonly changed = new vscode.EventEmitter<void>();
    readonly onDidChangeTreeData = this.changed.event;
    private hits: Hit[] = [];

    show(hits: Hit[]): void {
        this.hits = hits.slice(0, MOST_SHOWN);
        this.changed.fire();
    }

    getChildren(of?: Hit): Hit[] {
        return of === undefined ? this.hits : [];
    }

    getTreeItem(hit: Hit): vscode.TreeItem {
        const place = hit.place ?? hit;
        const value = hit.value ?? hit.what ?? hit.kind ?? '';
        const item = new vscode.TreeItem(value);
        const event = hit.event ?? hit.first;
        const where = place.file === undefined ? place.function : `${place.function ?? ''} ${place.file.split('/').pop()}:${place.line}`;
        const times = hit.writes === undefined ? undefined : `${hit.writes} times`;
        const thread = hit.thread === undefined ? undefined : `thread ${hit.thread}`;
        item.description = [event === undefined ? undefined : `event ${event}`, thread, where, times].filter(part => part !== undefined).join('  ');
        item.tooltip = JSON.stringify(hit, undefined, 1);
        if (event !== undefined) {
            item.command = { command: 'reprise.openHit', title: 'Go There', arguments: [event] };
        }
        return item;
    }
}

/** The session that is looked at, if it is one of ours. */
function session(): vscode.DebugSession {
    const active = vscode.debug.activeDebugSession;
    if (active?.type !== 'reprise') {
        throw new Error('no recording is being debugged');
    }
    return active;
}

/** What is meant: a variable of the debugger's view, what is selected or under the cursor, or what the user says. */
async function expressionOf(from: unknown): Promise<string | undefined> {
    const variable = (from as { variable?: { evaluateName?: string; name?: string } } | undefined)?.variable;
    if (variable !== undefined) {
        return variable.evaluateName ?? variable.name;
    }
    const editor = vscode.window.activeTextEditor;
    const range = editor && (editor.selection.isEmpty ? editor.document.getWordRangeAtPosition(editor.selection.active) : editor.selection);
    const usual = editor && range ? editor.document.getText(range) : '';
    return vscode.window.showInputBox({ prompt: 'An expression of the program', value: usual });
}

async function thread(of: vscode.DebugSession): Promise<number> {
    const item = vscode.debug.activeStackItem;
    if (item?.threadId !== undefined) {
        return item.threadId;
    }
    const all = await of.customRequest('threads');
    return all.threads[0].id;
}

export function activate(context: vscode.ExtensionContext): void {
    const found = new Found();
    const view = vscode.window.createTreeView('reprise.found', { treeDataProvider: found });

    const ask = (command: string, title: string) => async (from: unknown) => {
        const expression = await expressionOf(from);
        if (expression === undefined || expression === '') {
            return;
        }
        const asked = session();
        const location = { location: vscode.ProgressLocation.Notification, title: `${title} ${expression}` };
        const answer = await vscode.window.withProgress(location, () => asked.customRequest(`reprise/${command}`, { expression }));
        found.show(answer.list);
        view.title = `Reprise: ${title} ${expression}`;
        view.message = answer.found === 0 ? 'Nothing was found.' : answer.incomplete ? `These are the first ${answer.found}; there are more.` : undefined;
    };
    const move = (command: string) => async () => {
        const moved = session();
        await moved.customRequest(`reprise/${command}`, { threadId: await thread(moved) });
    };
    const goto = async (event: number) => session().customRequest('reprise/goto', { event });

    const commands: [string, (argument: never) => Promise<void>][] = [
        ['values', ask('values', 'values of')],
        ['origin', ask('origin', 'origin of')],
        ['where', ask('where', 'who writes to')],
        ['stepBackIn', move('stepBackIn')],
        ['stepBackOut', move('stepBackOut')],
        ['openHit', goto],
        ['goto', async () => {
            const { event, events } = await session().customRequest('reprise/when');
            const said = await vscode.window.showInputBox({ prompt: `An event, from 0 to ${events}`, value: String(event) });
            if (said !== undefined && /^\d+$/.test(said)) {
                await goto(Number(said));
            }
        }],
    ];
    for (const [name, run] of commands) {
        // What fails is said, and not only logged.
        const shown = (argument: never) => run(argument).catch(why => vscode.window.showErrorMessage(`Reprise: ${why.message ?? why}`));
        context.subscriptions.push(vscode.commands.registerCommand(`reprise.${name}`, shown));
    }

    const factory: vscode.DebugAdapterDescriptorFactory = {
        createDebugAdapterDescriptor(of) {
            if (typeof of.configuration.port === 'number') {
                return new vscode.DebugAdapterServer(of.configuration.port, '127.0.0.1');
            }
            const program = vscode.workspace.getConfiguration('reprise').get<string>('path', 'reprise');
            return new vscode.DebugAdapterExecutable(program, ['dap']);
        },
    };
    // Without launch.json: the latest recording.
    const configurations: vscode.DebugConfigurationProvider = {
        resolveDebugConfiguration(_folder, configuration) {
            if (configuration.type === undefined) {
                return { type: 'reprise', request: 'attach', name: 'The latest recording', stopOnEntry: true };
            }
            return configuration;
        },
    };
    context.subscriptions.push(
        view,
        vscode.debug.registerDebugAdapterDescriptorFactory('reprise', factory),
        vscode.debug.registerDebugConfigurationProvider('reprise', configurations),
        vscode.debug.onDidTerminateDebugSession(ended => ended.type === 'reprise' && found.show([])),
    );
}
