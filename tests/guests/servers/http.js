// An HTTP server; SIGTERM ends it in good order.
const http = require('http');
let served = 0;
const server = http.createServer((request, response) => {
    served++;
    response.end(`request ${served} at ${process.hrtime.bigint()} for ${request.url}\n`);
});
server.listen(Number(process.argv[2]), '127.0.0.1');
process.on('SIGTERM', () => {
    server.close(() => console.log('served some:', served > 0));
    server.closeAllConnections();
});
